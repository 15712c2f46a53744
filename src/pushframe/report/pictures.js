"use strict";
// Values as pictures, and pictures at any size without false patterns.
const pictures = (() => {
  function paint(pixels, values, colour, from, to) {
    values.forEach((value, index) => {
      if (Number.isNaN(value)) return; // a hole stays transparent
      const share = Math.min(1, Math.max(0, (value - from) / (to - from)));
      pixels.data.set(colour(Math.round(255 * share)), 4 * index);
      pixels.data[4 * index + 3] = 255;
    });
  }

  function blank(height, width) {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { height, width });
    return [canvas, canvas.getContext("2d")];
  }

  // Means of blocks of side x side values, smaller at the far edges; a hole where one of them is.
  function pooled({ height, width, values }, side) {
    const tall = Math.ceil(height / side), wide = Math.ceil(width / side);
    const sums = new Float32Array(tall * wide), counts = new Float32Array(tall * wide);
    values.forEach((value, index) => {
      const block = Math.floor(Math.floor(index / width) / side) * wide + Math.floor((index % width) / side);
      sums[block] += value;
      counts[block] += 1;
    });
    return { height: tall, width: wide, values: sums.map((sum, block) => sum / counts[block]) };
  }

  // An image as a canvas, each value a square of `times` pixels.
  function picture({ height, width, values }, { colour, from, to }, times) {
    const [small, context] = blank(height, width);
    const pixels = context.createImageData(width, height);
    paint(pixels, values, colour, from, to);
    context.putImageData(pixels, 0, 0);
    if (times === 1) return small;
    const [large, enlarge] = blank(times * height, times * width);
    enlarge.imageSmoothingEnabled = false;
    enlarge.drawImage(small, 0, 0, large.width, large.height);
    return large;
  }

  // How to draw values of which each takes `size` pixels of the screen. Whole sizes are exact. At
  // others all squares get their share by drawing larger ones smaller, smoothly. What alternates
  // from pixel to pixel in a map beats with pixels of the screen nearly as large: it is averaged
  // over `period` first.
  function plan(size, period) {
    if (Number.isInteger(size)) return { side: 1, times: 1, smooth: false };
    const side = size < 2 ? period * Math.ceil(1 / (period * size)) : 1;
    return { side, times: Math.max(1, Math.ceil(size * side)), smooth: true };
  }

  return { paint, picture, plan, pooled };
})();
