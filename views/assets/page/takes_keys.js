// @ts-check
/** Which keys an element wants for itself, so that they are no commands of the page. */

/** @param {Element} target @param {string} key */
export function takesKeys(target, key) {
  if (
    target.closest(
      "input:not([type=range]):not([type=checkbox]), textarea, select, " +
        "[contenteditable=true], [contenteditable='']",
    )
  )
    return true;
  if (target.matches("input[type=range]"))
    return key.startsWith("Arrow") || key === "Home" || key === "End";
  if (key === " " || key === "Enter")
    return Boolean(
      target.closest(
        "button, a, summary, input[type=checkbox], [role=button], [role=radio], [role=tab], " +
          "[role=checkbox], [role=switch], [role=option], [role=menuitem]",
      ),
    );
  if (key.startsWith("Arrow") || key === "Home" || key === "End") {
    return Boolean(
      target.closest(
        "[role=tab], [role=radio], [role=radiogroup], [role=slider], [role=menu], " +
          "[role=listbox], pre",
      ),
    );
  }
  return false;
}
