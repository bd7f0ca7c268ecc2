/* Every text that is drawn on a canvas, with the contrast to what lies below it at that time. */
(() => {
  const found = new Map();
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const proto = CanvasRenderingContext2D.prototype;
  const { fillText } = proto;

  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, alpha, below) => below.slice(0, 3).map((c, i) => top[i] * alpha + c * (1 - alpha));
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const luminance = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const parent = (node) => node.parentElement ?? node.getRootNode().host ?? null;
  const ground = (canvas) => {
    for (let node = canvas; node; node = parent(node)) {
      const colour = rgba(getComputedStyle(node).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };

  const within = (at, size) => Math.max(0, Math.min(size, at));

  /** A quarter of the text's box may be worse: corners that no letter reaches. */
  const look = (c, text, x, y) => {
    const { a, d, e, f } = c.getTransform();
    const box = c.measureText(text);
    const [left, top] = [x - box.actualBoundingBoxLeft, y - box.actualBoundingBoxAscent];
    const [right, bottom] = [x + box.actualBoundingBoxRight, y + box.actualBoundingBoxDescent];
    // What lies beyond the canvas is not drawn: there is nothing to be read, nor anything below it.
    const [x0, x1] = [left * a + e, right * a + e].map((at) => within(at, c.canvas.width));
    const [y0, y1] = [top * d + f, bottom * d + f].map((at) => within(at, c.canvas.height));
    if (x1 - x0 < 1 || y1 - y0 < 1) return;
    const [wide, high] = [Math.ceil(x1) - Math.floor(x0), Math.ceil(y1) - Math.floor(y0)];
    const { data } = c.getImageData(Math.floor(x0), Math.floor(y0), wide, high);
    const [ink, base] = [rgba(c.fillStyle), ground(c.canvas)];
    const ratios = [];
    for (let k = 0; k < data.length; k += 4) {
      const below = over(data.slice(k, k + 3), data[k + 3] / 255, base);
      ratios.push(ratio(over(ink, (c.globalAlpha * ink[3]) / 255, below), below));
    }
    const least = ratios.sort((p, q) => p - q)[Math.floor(ratios.length / 4)];
    const key = `${c.canvas.className}: ${c.fillStyle} at ${c.globalAlpha.toFixed(2)}`;
    if (!(found.get(key)?.least <= least)) found.set(key, { least, text });
  };

  proto.fillText = function (text, x, y, ...rest) {
    if (this.canvas.isConnected && String(text).trim() && typeof this.fillStyle === "string")
      look(this, String(text), x, y);
    return fillText.call(this, text, x, y, ...rest);
  };
  window.canvasTexts = () => [...found].map(([key, { least, text }]) => [key, text, least]);
  window.contrast = (one, other) => {
    const below = rgba(other);
    const top = rgba(one);
    return ratio(over(top, top[3] / 255, below), below);
  };
})();
