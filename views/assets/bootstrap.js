export default function (component) {
  let cleanup = () => {};
  let gone = false;
  import(new URL("/assets/workspace.js", location.origin).href).then((module) => {
    if (!gone) cleanup = module.mount(component);
  });
  return () => {
    gone = true;
    cleanup();
  };
}
