// The frames: a strip to choose from and a player that blinks through them.
(() => {
  const find = (id) => document.getElementById(id);
  const cards = [...document.querySelectorAll(".frame")];
  const screen = find("screen"), play = find("play"), registered = find("registered");
  let current = 0, timer = null;

  function show(index) {
    current = (index + cards.length) % cards.length;
    const card = cards[current], { name, exposure, noise, dy, dx } = card.dataset;
    cards.forEach((one) => one.setAttribute("aria-pressed", String(one === card)));
    screen.src = card.querySelector("img").src;
    screen.style.transform = registered && registered.checked ? `translate(${dx}%, ${dy}%)` : "none";
    find("frame-title").querySelector("b").textContent = name;
    find("frame-facts").textContent =
      `${current + 1} of ${cards.length}${current ? "" : " · reference"} · exposure ${exposure}` + (noise ? ` · noise ± ${noise} DN` : "");
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶ Play";
    play.setAttribute("aria-pressed", "false");
  }
  function start() {
    stop();
    timer = setInterval(() => show(current + 1), 1000 / Number(find("speed").value));
    play.textContent = "❚❚ Pause";
    play.setAttribute("aria-pressed", "true");
  }

  play.addEventListener("click", () => (timer ? stop() : start()));
  find("speed").addEventListener("input", () => timer && start());
  if (registered) registered.addEventListener("change", () => show(current));
  cards.forEach((card, index) => card.addEventListener("click", () => { stop(); show(index); }));
  show(0);
})();
