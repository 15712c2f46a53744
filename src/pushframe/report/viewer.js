// The swipe viewer: two layers on one canvas, a divider, zoom and pan, values under the pointer.
(() => {
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("pushframe-data").textContent);
  const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

  function unpack({ offset, step, codes }) {
    const view = new DataView(bytesOf(codes).buffer);
    return Float32Array.from({ length: view.byteLength / 2 }, (_, index) => {
      const code = view.getUint16(2 * index, true);
      return code === 65535 ? NaN : offset + step * code;
    });
  }

  const layers = data.layers.map((layer) => ({
    ...layer,
    height: layer.mean.height,
    width: layer.mean.width,
    mean: unpack(layer.mean),
    std: layer.std && unpack(layer.std),
  }));
  const truth = layers.find((layer) => layer.key === "truth") ?? null;
  const methods = layers.filter((layer) => layer.key.startsWith("method-"));
  const best = layers.find((layer) => layer.key === data.right); // the result, on its own grid
  const { height, width } = best;
  const colours = bytesOf(data.colours);
  const period = Math.max(...layers.map((layer) => layer.scale)); // px after which samples fall alike

  // What can be shown on either side: every image, and for methods the error and its bar.
  const grey = (level) => [level, level, level];
  const inferno = (level) => colours.subarray(3 * level, 3 * level + 3);
  const [low, high] = data.stretch;
  const views = new Map();
  const addView = (group, key, name, layer, values, colour, from, to) =>
    views.set(key, { group, name, layer, values, colour, from, to, pictures: new Map() });
  for (const layer of layers) {
    addView("Image", layer.key, layer.name, layer, () => layer.mean, grey, low, high);
  }
  for (const layer of truth ? methods : []) {
    const error = () => layer.mean.map((value, index) => Math.abs(value - truth.mean[index]));
    addView("|Error|", `${layer.key}-error`, `|error| · ${layer.name}`, layer, error, inferno, 0, data.error_top);
  }
  for (const layer of methods.filter((layer) => layer.std)) {
    addView("Error bar", `${layer.key}-std`, `error bar · ${layer.name}`, layer, () => layer.std, inferno, 0, data.error_top);
  }

  // A view as a picture, by the plan for the size of its pixels.
  function picture(view, { side, times }) {
    const key = `${side} ${times}`, { height, width } = view.layer;
    if (!view.pictures.has(key)) {
      const image = { height, width, values: view.values() };
      view.pictures.set(key, pictures.picture(side > 1 ? pictures.pooled(image, side) : image, view, times));
    }
    return view.pictures.get(key);
  }

  const stage = find("stage"), canvas = find("canvas"), handle = find("handle");
  const context = canvas.getContext("2d");
  const MAX_ZOOM = 32;
  const state = {
    left: data.left, right: data.right, split: 0.5,
    zoom: 1, wish: 1, y: height / 2, x: width / 2, // the point of the image in the middle of the stage
    pixel: null, // {y, x} in the image, corner of the first pixel (0, 0)
  };

  // One unit of the image in canvas pixels, and where its origin lies.
  function frame() {
    const exact = fit() * state.zoom, whole = Math.round(exact);
    const unit = Math.abs(exact - whole) < 1e-6 ? whole : exact;
    const place = (size, at) => Math.round(size / 2 - at * unit);
    return { unit, top: place(canvas.height, state.y), left: place(canvas.width, state.x) };
  }
  const fit = () => canvas.width / width;

  function drawView(view, { unit, top, left }) {
    const { scale } = view.layer;
    const plan = pictures.plan(scale * unit, view.colour === inferno ? period : 1);
    const image = picture(view, plan), size = (scale * unit * plan.side) / plan.times;
    const tall = image.height * size, wide = image.width * size;
    context.imageSmoothingEnabled = plan.smooth;
    // Low-resolution pixel l has the centre of high-resolution pixel s*l; the first drawing
    // only fills the strip that this leaves at the far edges.
    const shift = ((1 - scale) / 2) * unit;
    if (shift) context.drawImage(image, left, top, wide, tall);
    context.drawImage(image, left + shift, top + shift, wide, tall);
  }

  function draw() {
    const place = frame(), cut = Math.round(state.split * canvas.width);
    context.clearRect(0, 0, canvas.width, canvas.height);
    for (const [key, from, to] of [[state.left, 0, cut], [state.right, cut, canvas.width]]) {
      context.save();
      context.beginPath();
      context.rect(from, 0, to - from, canvas.height);
      context.clip();
      drawView(views.get(key), place);
      context.restore();
    }
    if (state.pixel && place.unit >= 3) {
      const y = place.top + Math.floor(state.pixel.y) * place.unit;
      const x = place.left + Math.floor(state.pixel.x) * place.unit;
      for (const [colour, line] of [["#000", 3], ["#fff", 1.5]]) {
        context.strokeStyle = colour;
        context.lineWidth = line;
        context.strokeRect(x, y, place.unit, place.unit);
      }
    }
  }

  let asked = false;
  function redraw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  }

  function setSplit(share) {
    state.split = Math.min(1, Math.max(0, share));
    const percent = Math.round(100 * state.split);
    handle.style.left = `${100 * state.split}%`;
    handle.setAttribute("aria-valuenow", percent);
    handle.setAttribute("aria-valuetext", `${percent}% ${views.get(state.left).name}`);
    redraw();
  }

  function setCentre(y, x) {
    const halfTall = height / 2 / state.zoom, halfWide = width / 2 / state.zoom;
    state.y = Math.min(height - halfTall, Math.max(halfTall, y));
    state.x = Math.min(width - halfWide, Math.max(halfWide, x));
    redraw();
  }

  // The point of the image under a point of the window.
  function pointAt(clientX, clientY) {
    const box = canvas.getBoundingClientRect(), { unit, top, left } = frame();
    const ratio = canvas.width / box.width;
    return { y: ((clientY - box.top) * ratio - top) / unit, x: ((clientX - box.left) * ratio - left) / unit };
  }

  // Zoom so that the point of the image under the pointer stays there. Pixels get whole sizes
  // unless all of the image is shown, or they are smaller than those of the screen.
  function zoomTo(zoom, anchor = { y: state.y, x: state.x }) {
    const before = state.zoom;
    state.wish = Math.min(MAX_ZOOM, Math.max(1, zoom));
    const unit = fit() * state.wish, whole = Math.max(Math.floor(fit()) + 1, Math.round(unit));
    state.zoom = state.wish === 1 || unit < 1 ? state.wish : whole / fit();
    const kept = before / state.zoom;
    setCentre(anchor.y + (state.y - anchor.y) * kept, anchor.x + (state.x - anchor.x) * kept);
    find("zoom-level").textContent = `${state.zoom < 9.95 ? +state.zoom.toFixed(1) : Math.round(state.zoom)}×`;
    stage.classList.toggle("zoomed", state.zoom > 1);
  }

  // The readout: one row a layer.
  const text = (value, digits, signed = false) => {
    if (value === null || Number.isNaN(value)) return "–";
    const sign = value < 0 ? "−" : signed ? "+" : "";
    return sign + Math.abs(value).toFixed(digits);
  };
  const rows = layers.map((layer) => {
    const row = find("values").insertRow();
    row.dataset.layer = layer.key;
    const head = document.createElement("th");
    head.scope = "row";
    head.className = "name";
    head.textContent = layer.name;
    row.append(head);
    const cells = (truth ? ["value", "error", "z"] : ["value"]).map((field) => {
      const cell = row.insertCell();
      cell.dataset.field = field;
      cell.textContent = "–";
      return cell;
    });
    return { layer, row, cells };
  });

  function indexIn(layer, { y, x }) {
    const place = (at, size) => Math.min(size - 1, Math.max(0, Math.floor((at - 0.5 + layer.scale / 2) / layer.scale)));
    return place(y, layer.height) * layer.width + place(x, layer.width);
  }

  // The loupes: every image around the pixel read, stretched to the range there of the truth, or of the result. Two
  // samples a pixel, since the pixels of a frame may begin halfway between those of the image.
  const REACH = 7, SIDE = 2 * (2 * REACH + 1);
  const loupes = layers.map((layer) => {
    const box = document.createElement("figure"), glass = document.createElement("canvas");
    const caption = document.createElement("figcaption"), lens = document.createElement("div");
    glass.width = glass.height = SIDE;
    lens.className = "lens holes";
    caption.className = "name";
    caption.textContent = layer.name;
    lens.append(glass);
    box.append(lens, caption);
    find("loupes").append(box);
    return { layer, glass: glass.getContext("2d") };
  });

  function magnify({ y, x }) {
    const from = { y: Math.floor(y) - REACH, x: Math.floor(x) - REACH };
    const look = (layer) => Array.from({ length: SIDE * SIDE }, (_, index) => {
      const at = { y: from.y + (Math.floor(index / SIDE) + 0.5) / 2, x: from.x + ((index % SIDE) + 0.5) / 2 };
      const outside = at.y < 0 || at.x < 0 || at.y > height || at.x > width;
      return outside ? NaN : layer.mean[indexIn(layer, at)];
    });
    const known = look(truth ?? best).filter((value) => !Number.isNaN(value));
    const dark = known.length ? Math.min(...known) : low, bright = known.length ? Math.max(...known) : high;
    for (const { layer, glass } of loupes) {
      const pixels = glass.createImageData(SIDE, SIDE);
      pictures.paint(pixels, look(layer), grey, dark, Math.max(bright, dark + 0.02 * (high - low)));
      glass.putImageData(pixels, 0, 0);
    }
  }

  // As many decimals as the error bars at a point need: one, unless the unit is large.
  function decimals(point) {
    const bars = layers.map((layer) => (layer.std ? layer.std[indexIn(layer, point)] : 0)).filter((std) => std > 0);
    return bars.length ? Math.min(20, Math.max(1, 1 - Math.floor(Math.log10(Math.min(...bars))))) : 1;
  }

  function read(point) {
    if (point.y < 0 || point.x < 0 || point.y >= height || point.x >= width) return;
    state.pixel = point;
    const [top, left] = data.origin;
    find("pixel").textContent = `y ${Math.floor(point.y) + top}, x ${Math.floor(point.x) + left}`;
    const digits = decimals(point);
    for (const { layer, cells } of rows) {
      const index = indexIn(layer, point), value = layer.mean[index];
      const std = layer.std ? layer.std[index] : null;
      cells[0].textContent = text(value, digits) + (std === null || Number.isNaN(std) ? "" : ` ± ${text(std, digits)}`);
      if (!truth) continue;
      const error = layer === truth ? null : value - truth.mean[indexIn(truth, point)];
      cells[1].textContent = text(error, digits, true);
      cells[2].textContent = std ? text(error / std, 2, true) : "–";
    }
    magnify(point);
    redraw();
  }

  // Pointers: the divider is dragged by its handle, or anywhere while the whole image is shown;
  // otherwise one pointer pans; two pinch.
  const held = new Map();
  let drag = null, start = null;
  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    stage.setPointerCapture(event.pointerId);
    held.set(event.pointerId, event);
    drag = handle.contains(event.target) ? "split" : state.zoom > 1 ? "pan" : "unsure";
    start = event;
    read(pointAt(event.clientX, event.clientY));
  });
  stage.addEventListener("pointermove", (event) => {
    const before = held.get(event.pointerId);
    if (!before) return read(pointAt(event.clientX, event.clientY));
    const across = Math.abs(event.clientX - start.clientX), down = Math.abs(event.clientY - start.clientY);
    if (drag === "unsure" && across > 4 && across > down) drag = "split"; // else a finger scrolls
    if (held.size === 2) {
      const other = [...held.values()].find((one) => one.pointerId !== event.pointerId);
      const apart = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
      const middle = pointAt((event.clientX + other.clientX) / 2, (event.clientY + other.clientY) / 2);
      zoomTo((state.wish * apart(event)) / Math.max(1, apart(before)), middle);
    } else if (drag === "split") {
      const box = stage.getBoundingClientRect();
      setSplit((event.clientX - box.left) / box.width);
    } else if (drag === "pan") {
      const from = pointAt(before.clientX, before.clientY), to = pointAt(event.clientX, event.clientY);
      setCentre(state.y + from.y - to.y, state.x + from.x - to.x);
    }
    held.set(event.pointerId, event);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    stage.addEventListener(name, (event) => {
      held.delete(event.pointerId);
      if (state.zoom > 1) drag = "pan"; // the finger left over from a pinch
    });
  }
  // A plain wheel scrolls the page until the viewer was clicked; a trackpad's pinch always zooms.
  stage.addEventListener("wheel", (event) => {
    const active = event.ctrlKey || stage.contains(document.activeElement);
    if (!active || (state.zoom === 1 && event.deltaY > 0 && !event.ctrlKey)) return;
    event.preventDefault();
    const turn = event.deltaY * (event.deltaMode === 1 ? 16 : 1) * (event.ctrlKey ? 4 : 1);
    zoomTo(state.wish * Math.exp(-0.0025 * turn), pointAt(event.clientX, event.clientY));
  }, { passive: false });

  // Keys.
  const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  handle.addEventListener("keydown", (event) => {
    const jump = { Home: 0, End: 1 }[event.key];
    const step = ARROWS[event.key];
    if (jump === undefined && !step) return;
    event.preventDefault();
    setSplit(jump ?? state.split + 0.02 * (step[1] - step[0]));
  });
  canvas.addEventListener("keydown", (event) => {
    const step = ARROWS[event.key];
    if (step) {
      const at = state.pixel ?? state, clamp = (value, size) => Math.min(size - 1, Math.max(0, value)) + 0.5;
      const y = clamp(Math.floor(at.y) + step[0], height), x = clamp(Math.floor(at.x) + step[1], width);
      const spanY = height / 2 / state.zoom - 1, spanX = width / 2 / state.zoom - 1;
      setCentre(Math.min(y + spanY, Math.max(y - spanY, state.y)), Math.min(x + spanX, Math.max(x - spanX, state.x)));
      read({ y, x });
    } else if (event.key === "+" || event.key === "=") zoomTo(state.wish * 1.5, state.pixel ?? undefined);
    else if (event.key === "-") zoomTo(state.wish / 1.5, state.pixel ?? undefined);
    else if (event.key === "0") zoomTo(1);
    else return;
    event.preventDefault();
  });
  find("zoom-in").addEventListener("click", () => zoomTo(state.wish * 1.5));
  find("zoom-out").addEventListener("click", () => zoomTo(state.wish / 1.5));
  find("zoom-fit").addEventListener("click", () => zoomTo(1));

  // Choosing the two sides.
  function choose(left, right) {
    Object.assign(state, { left, right });
    for (const side of ["left", "right"]) {
      find(side).value = state[side];
      find(`tag-${side}`).textContent = views.get(state[side]).name;
    }
    const shown = [left, right].map((key) => views.get(key));
    for (const { layer, row } of rows) row.classList.toggle("shown", shown.some((view) => view.layer === layer));
    canvas.setAttribute("aria-label", `${shown[0].name} beside ${shown[1].name}`);
    setSplit(state.split);
  }
  for (const side of ["left", "right"]) {
    const select = find(side);
    for (const [key, view] of views) {
      let group = [...select.children].find((one) => one.label === view.group);
      if (!group) {
        group = document.createElement("optgroup");
        group.label = view.group;
        select.append(group);
      }
      group.append(new Option(view.name, key));
    }
    select.addEventListener("change", () => choose(find("left").value, find("right").value));
  }
  find("swap").addEventListener("click", () => choose(state.right, state.left));

  new ResizeObserver(() => {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.round(stage.clientWidth * ratio));
    canvas.height = Math.max(1, Math.round(stage.clientHeight * ratio));
    zoomTo(state.wish);
    draw();
  }).observe(stage);
  choose(state.left, state.right);
  read({ y: Math.floor(height / 2) + 0.5, x: Math.floor(width / 2) + 0.5 });
})();
