"use strict";
(() => {
  // As Python's "%.4g": the nearest number of so many digits, of two the even one.
  const general = (x, digits) => {
    if (x === 0) return "0";
    const [all, power] = Math.abs(x).toExponential(80).split("e");
    const exact = all.replace(".", "");
    let n = BigInt(exact.slice(0, digits)), e = Number(power);
    const rest = exact.slice(digits);
    if (rest[0] > "5" || (rest[0] === "5" && (/[1-9]/.test(rest.slice(1)) || n % 2n))) n += 1n;
    let text = String(n);
    if (text.length > digits) { text = text.slice(0, digits); e += 1; }
    const sign = x < 0 ? "-" : "";
    if (e < -4 || e >= digits) {
      const tail = text.slice(1).replace(/0+$/, "");
      return `${sign}${text[0]}${tail && "." + tail}e${e < 0 ? "-" : "+"}${String(Math.abs(e)).padStart(2, "0")}`;
    }
    const padded = e < 0 ? "0".repeat(-e) + text : text;
    const whole = padded.slice(0, Math.max(e, 0) + 1), tail = padded.slice(Math.max(e, 0) + 1).replace(/0+$/, "");
    return sign + whole + (tail && "." + tail);
  };
  const giga = (x) => general(x / 1e9, x < 1e13 ? 4 : 6);
  if (typeof document === "undefined") { globalThis.placeproof = { formulas, giga, general }; return; }

  const told = JSON.parse(document.getElementById("live").textContent);
  const values = { ...told.values };
  const inputs = [...document.querySelectorAll(".sliders input")];
  const figures = [...document.querySelectorAll("main data")];
  const start = new Map(figures.map((figure) => [figure, figure.value]));
  const number = {};
  for (const figure of figures) number[figure.dataset.at] = Number(figure.value);

  const draw = (bars) => {
    const rows = [...bars.querySelectorAll(".track")].map((track) => {
      const parts = [...track.querySelectorAll("i")].map((i) => number[i.dataset.part] || 0);
      const whole = track.dataset.whole ? number[track.dataset.whole] : 0;
      if (track.dataset.whole) parts[parts.length - 1] = Math.max(whole - parts.reduce((a, b) => a + b, 0), 0);
      return { track, parts, length: Math.max(whole, parts.reduce((a, b) => a + b, 0)) };
    });
    const limit = bars.dataset.limit ? number[bars.dataset.limit] : 0;
    const most = Math.max(limit, ...rows.map((row) => row.length)) || 1;
    for (const { track, parts, length } of rows) {
      track.querySelectorAll("i").forEach((i, n) => { i.style.width = `${((100 * parts[n]) / most).toFixed(3)}%`; });
      const line = track.querySelector("b");
      if (line) line.style.left = `${((100 * limit) / most).toFixed(3)}%`;
      track.parentElement.classList.toggle("over", limit > 0 && length > limit);
    }
  };

  const update = () => {
    const moved = [];
    for (const input of inputs) {
      const symbol = input.dataset.symbol, positions = told.sliders[symbol];
      values[symbol] = positions[Number(input.value)];
      const text = symbol === "capacity" ? `${giga(values[symbol])} GB` : String(values[symbol]);
      input.setAttribute("aria-valuetext", text);
      input.nextElementSibling.textContent = text;
      if (values[symbol] !== told.values[symbol]) moved.push(symbol);
    }
    const refused = told.refused.find((pair) => pair.every(([symbol, value]) => values[symbol] === value));
    for (const figure of figures) {
      const at = figure.dataset.at, formula = formulas[at];
      const kept = moved.length === 0 || (at === told.capacity ? false : refused || !formula);
      const value = kept ? Number(start.get(figure)) : at === told.capacity ? values.capacity : formula(values);
      number[at] = value;
      figure.value = kept ? start.get(figure) : String(value);
      if (figure.dataset.as === "giga") figure.textContent = giga(value);
      figure.classList.toggle("old", moved.some((symbol) => symbol !== "capacity") && kept);
    }
    document.querySelectorAll(".bars").forEach(draw);
    const listed = moved.map((symbol) => (symbol === "capacity" ? `capacity = ${giga(values.capacity)} GB` : `${symbol} = ${values[symbol]}`));
    document.getElementById("moved").textContent = refused
      ? `refused: ${refused.map(([symbol, value]) => `${symbol} = ${value}`).join(" and ")} do not go together`
      : moved.length === 0
        ? "as it was derived"
        : `${listed.join(", ")}: figures that are drawn are worked out anew; what is struck through, and all text, is as it was derived`;
  };

  inputs.forEach((input) => input.addEventListener("input", update));
  document.getElementById("back").addEventListener("click", () => {
    inputs.forEach((input) => { input.value = input.dataset.start; });
    update();
  });
  document.querySelector(".sliders").hidden = false;
  update();
})();
