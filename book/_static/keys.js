// The arrow keys turn the page, unless they are needed where the reader is: in a field, a slider, or a box that scrolls.
(() => {
  const ways = { ArrowLeft: "a.left-prev", ArrowRight: "a.right-next" };
  document.addEventListener("keydown", (event) => {
    const free = document.activeElement === document.body || document.activeElement?.matches("a");
    const plain = !event.ctrlKey && !event.altKey && !event.metaKey && !event.shiftKey;
    if (free && plain && !event.defaultPrevented) document.querySelector(ways[event.key])?.click();
  });
})();
