"""Frames at an even pace: in a page where it holds, each frame is 1/60 s after the one before.

A browser that gets no processor for a while makes fewer frames, each with more to do. To see what a
frame costs, each must have as much to do as on a machine that keeps up: so the page's clock goes on
by a sixtieth of a second a frame, however long that took, and its timers follow that clock.
"""

from __future__ import annotations

EVEN_FRAMES = """() => {
  const own = {
    frame: window.requestAnimationFrame,
    now: performance.now.bind(performance),
    set: window.setTimeout,
    clear: window.clearTimeout,
  };
  const timers = new Map();
  let [on, time, latest, made] = [false, 0, 0, 1e9];
  const begin = (stamp) => {
    if (stamp === latest) return; // another callback of this frame
    latest = stamp;
    time += 1000 / 60;
    for (const [id, { at, act }] of [...timers]) if (at <= time && timers.delete(id)) act();
  };
  performance.now = () => (on ? time : own.now());
  window.requestAnimationFrame = (act) =>
    own.frame.call(window, (stamp) => {
      if (on) begin(stamp);
      act(performance.now());
    });
  window.setTimeout = (act, wait = 0, ...rest) => {
    if (!on) return own.set.call(window, act, wait, ...rest);
    timers.set((made += 1), { at: time + wait, act: () => act(...rest) });
    return made;
  };
  window.clearTimeout = (id) => {
    if (!timers.delete(id)) own.clear.call(window, id);
  };
  window.evenFrames = (hold) => {
    if (hold && !on) time = own.now();
    if (!hold) for (const { at, act } of timers.values()) own.set.call(window, act, at - time);
    if (!hold) timers.clear();
    on = hold;
  };
}"""
