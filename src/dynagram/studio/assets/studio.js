// The studio: sliders, four charts, a few networks that train in the browser. It asks for parts by
// name through `ask`, so that the same module serves a page and a notebook. No text is evaluated.

const LABELS = {
  C_b: "C_b  bias variance", C_W: "C_W  weight variance × fan-in", width: "width n",
  depth: "depth L", skip: "skip γ", eta: "learning rate η", steps: "steps",
  scale: "start of the plateau: scale",
};
const LOGARITHMIC = new Set(["width", "eta", "steps", "scale"]);
const WHOLE = new Set(["width", "depth", "steps"]);
const ORDER = ["C_b", "C_W", "width", "depth", "skip", "eta", "steps", "scale"];
const SLIDER = 1000;
const MEMBERS = 5;
const PATIENCE = 150;  // milliseconds without a change before networks begin anew
// Which parts a control changes; the others stay as they are.
const PARTS = {
  C_b: ["flow", "trained"], C_W: ["flow", "trained"], width: ["flow", "trained", "plateau"],
  depth: ["flow", "trained", "plateau"], skip: ["flow", "trained"], eta: ["trained"],
  steps: ["trained"], scale: ["plateau"], data: ["trained", "table"],
};
const EVERY = ["phase", "flow", "trained", "plateau", "table"];

const made = (tag, options = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), options);
  element.append(...children);
  return element;
};

const shown = (value) => (Number.isInteger(value) ? String(value) : value.toPrecision(3));

// --- networks that train here ---------------------------------------------------------------
const random = (seed) => {  // mulberry32, and the normal numbers of Box and Muller
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
};

export class SmallNetwork {
  // z' = b + W s(z) + skip z, drawn with b ~ N(0, C_b), W ~ N(0, C_W / fan-in), trained by
  // gradient descent on half the sum of squares with rates η for biases and η / fan-in for weights.
  constructor(table, seed) {
    this.table = table;
    const normal = random(seed);
    this.layers = table.widths.slice(1).map((n, l) => {
      const m = table.widths[l];
      const scale = Math.sqrt(table.C_W / m);
      return {
        n, m, skip: table.skip[l],
        b: Float64Array.from({length: n}, () => Math.sqrt(table.C_b) * normal()),
        W: Float64Array.from({length: n * m}, () => scale * normal()),
      };
    });
  }

  interpolate(values, z) {
    const {reach} = this.table;
    const place = ((Math.max(-reach, Math.min(reach, z)) + reach) / (2 * reach)) * (values.length - 1);
    const low = Math.min(Math.floor(place), values.length - 2);
    const inside = values[low] + (place - low) * (values[low + 1] - values[low]);
    if (Math.abs(z) <= reach || values !== this.table.values) return inside;
    const slope = this.table.slopes[z > 0 ? values.length - 1 : 0];
    return inside + slope * (z - Math.sign(z) * reach);
  }

  forward(x) {
    const signals = [Float64Array.from(x)], before = [];
    let z = null;
    this.layers.forEach(({n, m, b, W, skip}, l) => {
      const input = signals[l], next = new Float64Array(n);
      for (let i = 0; i < n; i++) {
        let sum = b[i] + (skip && z ? skip * z[i] : 0);
        for (let j = 0; j < m; j++) sum += W[i * m + j] * input[j];
        next[i] = sum;
      }
      z = next;
      before.push(z);
      if (l < this.layers.length - 1) {
        signals.push(Float64Array.from(z, (value) => this.interpolate(this.table.values, value)));
      }
    });
    return {signals, before, output: z[0]};
  }

  step() {
    const gradients = this.layers.map(({n, m}) => ({b: new Float64Array(n), W: new Float64Array(n * m)}));
    this.table.x.forEach((x, a) => {
      const {signals, before, output} = this.forward(x);
      let delta = Float64Array.of(output - this.table.y[a]);
      for (let l = this.layers.length - 1; l >= 0; l--) {
        const {n, m, W, skip} = this.layers[l];
        const input = signals[l], gradient = gradients[l];
        const below = l > 0 ? new Float64Array(m) : null;
        for (let i = 0; i < n; i++) {
          gradient.b[i] += delta[i];
          for (let j = 0; j < m; j++) {
            gradient.W[i * m + j] += delta[i] * input[j];
            if (below) below[j] += delta[i] * W[i * m + j];
          }
        }
        if (below) {
          for (let j = 0; j < m; j++) {
            below[j] = below[j] * this.interpolate(this.table.slopes, before[l - 1][j])
              + (skip ? skip * delta[j] : 0);
          }
          delta = below;
        }
      }
    });
    this.layers.forEach(({m, b, W}, l) => {
      const {eta} = this.table, gradient = gradients[l];
      for (let i = 0; i < b.length; i++) b[i] -= eta * gradient.b[i];
      for (let i = 0; i < W.length; i++) W[i] -= (eta / m) * gradient.W[i];
    });
  }

  curve() {
    return this.table.grid.map((x) => ({x: x[0], y: this.forward(x).output}));
  }
}

// --- charts ---------------------------------------------------------------------------------
const base = (layer) => ({
  $schema: "https://vega.github.io/schema/vega-lite/v6.json",
  width: "container", height: 220, autosize: {type: "fit", contains: "padding"},
  // Until the first answer: axes and legends without rows would have no ends.
  datasets: {lines: ["directions kept", "norms kept"].map((line) => ({line, order: 0, C_W: 0, C_b: 0})),
    points: [], members: [], here: [],
    rows: [1, 2].map((place) => ({layer: place, x: 0, K: 0, mean: 0, low: 0, high: 1}))}, layer,
});
const quantity = (field, title, extra = {}) => ({field, type: "quantitative", title, ...extra});

const CHARTS = {
  phase: base([
    {data: {name: "lines"}, mark: {type: "line", clip: true}, encoding: {
      x: quantity("C_W", "C_W", {scale: {domain: [0, 6]}}),
      y: quantity("C_b", "C_b", {scale: {domain: [-0.1, 2]}}),
      order: {field: "order"}, color: {field: "line", type: "nominal", title: null,
        legend: {orient: "bottom"}}, strokeDash: {field: "line", type: "nominal", title: null}}},
    {data: {name: "points"}, mark: {type: "point", size: 110, clip: true, color: "#8a8f98"}, encoding: {
      x: quantity("C_W"), y: quantity("C_b"),
      tooltip: [{field: "name"}, {field: "C_W", format: ".4g"}, {field: "C_b", format: ".4g"}]}},
    {data: {name: "points"}, mark: {type: "text", align: "left", dx: 9, dy: -9, clip: true}, encoding: {
      x: quantity("C_W"), y: quantity("C_b"), text: {field: "name"}}},
    {data: {name: "here"}, mark: {type: "point", filled: true, size: 110, color: "#d55e00", opacity: 1}, encoding: {
      x: quantity("C_W"), y: quantity("C_b"), tooltip: [{field: "C_W"}, {field: "C_b"}]}},
  ]),
  flow: base([
    {data: {name: "rows"}, mark: {type: "area", opacity: 0.2}, encoding: {
      x: quantity("layer", "layer"), y: quantity("low", "mean square of a neuron"), y2: {field: "high"}}},
    {data: {name: "rows"}, mark: {type: "line"}, encoding: {
      x: quantity("layer"), y: quantity("K"),
      tooltip: [{field: "layer"}, {field: "K", format: ".4g"}, {field: "relative", format: ".1%",
        title: "two draws differ by"}]}},
  ]),
  trained: base([
    {data: {name: "rows"}, mark: {type: "area", opacity: 0.2, clip: true, interpolate: "monotone"}, encoding: {
      x: quantity("x", "input"), y: quantity("low", "output", {scale: {domain: [-3, 3]}}), y2: {field: "high"}}},
    {data: {name: "rows"}, mark: {type: "line", clip: true, interpolate: "monotone"}, encoding: {x: quantity("x"), y: quantity("mean")}},
    {data: {name: "members"}, mark: {type: "line", strokeWidth: 1, opacity: 0.8, clip: true}, encoding: {
      x: quantity("x"), y: quantity("y"), detail: {field: "member"}, color: {value: "#d55e00"}}},
    {data: {name: "points"}, mark: {type: "point", filled: true, size: 70, opacity: 1}, encoding: {
      x: quantity("x"), y: quantity("y"), tooltip: [{field: "x", format: ".3g"}, {field: "y", format: ".3g"}]}},
  ]),
};
const TITLES = {
  phase: "Phase plane", flow: "Signal through the layers, band: spread of networks",
  trained: "After training: theory (n = ∞ only), and five networks of this width", plateau: "Plateau",
};

// --- the studio -----------------------------------------------------------------------------
export const mount = (place, {settings, ask, read, write, vegaEmbed}) => {
  const media = matchMedia("(prefers-color-scheme: dark)");
  let state = {...settings.usual};
  const root = made("div", {className: "studio"});
  const controls = made("div", {className: "controls"});
  const charts = made("div", {className: "charts"});
  root.append(made("h1", {textContent: "dynagram studio"}), controls, charts);
  place.replaceChildren(root);

  const panels = {}, views = {}, running = {}, inputs = {};
  for (const [name, title] of Object.entries(TITLES)) {
    const chart = made("div", {className: "chart"});
    const words = made("p");
    panels[name] = {box: made("div", {className: "panel"}), chart, words};
    panels[name].box.dataset.part = name;
    panels[name].box.append(made("h2", {textContent: title}), ...(CHARTS[name] ? [chart] : []), words);
    charts.append(panels[name].box);
  }
  const message = made("p", {className: "message", ariaLive: "polite"});

  const say = (name, text, wrong = false) => {
    panels[name].words.textContent = text;
    panels[name].words.className = wrong ? "wrong" : "";
  };

  const update = async (name, data) => {
    const view = await views[name];
    for (const [key, rows] of Object.entries(data)) view.data(key, rows);
    await view.runAsync();
  };

  const drawAll = () => {
    for (const name of Object.keys(CHARTS)) {
      views[name] = vegaEmbed(panels[name].chart, structuredClone(CHARTS[name]), {
        config: {...(media.matches ? settings.dark : settings.light), background: null},
        renderer: "svg", ast: true, actions: false, logLevel: 1,
        tooltip: {theme: media.matches ? "dark" : "light"},
      }).then((result) => result.view);
    }
  };

  // --- answers ------------------------------------------------------------------------------
  let members = null, timer = 0, generation = 0, table = null, soon = 0;
  const show = {
    phase: (answer) => {
      const points = answer.points.map((point) => ({...point, name: `critical, ${point.name}`}));
      critical = answer.points;
      criticalButton.disabled = !critical.length;
      say("phase", answer.points.length ? "" : "This activation has no critical point.");
      return update("phase", {lines: answer.lines, points});
    },
    flow: (answer) => {
      const more = answer.ntk_spread === undefined ? "" :
        ` Learning differs by ${(100 * answer.ntk_spread).toFixed(0)} % between draws; one input` +
        ` allows η up to ${answer.largest_step.toPrecision(3)}.`;
      say("flow", answer.words + more);
      return update("flow", {rows: answer.rows});
    },
    trained: (answer) => {
      say("trained", answer.verdict);
      return update("trained", {rows: answer.rows, points: answer.points});
    },
    plateau: (answer) => {
      const text = (value) => (value === null ? "–" : value.toPrecision(4));
      say("plateau", `A start with small weights, scale ${shown(state.scale)}, in ${answer.depth} ` +
        `layers stands still until time ${text(answer.ode)} (leading law ${text(answer.leading)}, ` +
        `next order ${text(answer.next)}), in the clock of the reduced flow; activations of class ` +
        `${answer.kind}.`);
    },
    table: (answer) => { table = answer; train(); },
  };

  // The networks of the present settings; only the activation and the data come from the server.
  const train = () => {
    clearInterval(timer);
    if (!table) return;
    const mine = ++generation;
    const depth = Math.min(state.depth, settings.deepest);
    const widths = [2, ...Array(depth - 1).fill(state.width), 1];
    const skip = widths.slice(1).map((_, l) => (l > 0 && l < depth - 1 ? state.skip : 0));
    const {C_b, C_W, eta, steps} = state;
    const mixed = {...table, C_b, C_W, eta, steps, widths, skip};
    const networks = Array.from({length: MEMBERS}, (_, k) => new SmallNetwork(mixed, 1 + k));
    let done = 0;
    const draw = () => update("trained", {members: networks.flatMap((network, member) =>
      network.curve().map((point) => ({...point, member})))});
    members = {networks, get done() { return done; }};
    draw();
    timer = setInterval(() => {
      const until = performance.now() + 12;
      while (done < mixed.steps && performance.now() < until) {
        networks.forEach((network) => network.step());
        done += 1;
      }
      root.dataset.steps = done;
      if (mine === generation) draw();
      if (done >= mixed.steps || mine !== generation) clearInterval(timer);
    }, 60);
  };

  const request = async (part) => {
    running[part]?.abort();
    const mine = (running[part] = new AbortController());
    const panel = panels[part === "table" ? "trained" : part];
    const slow = setTimeout(() => panel.box.classList.add("waiting"), 150);
    const start = performance.now();
    try {
      const answer = await ask(part, state, mine.signal);
      if (mine.signal.aborted) return;
      if (answer.error) {
        say(part === "table" ? "trained" : part, answer.error, true);
        if (part === "table") clearInterval(timer);
      } else await show[part](answer);
      root.dataset[`ms${part}`] = (performance.now() - start).toFixed(1);
      message.textContent = "";
    } catch (error) {
      if (error.name !== "AbortError") message.textContent = `No answer: ${error.message}. Is the studio still running?`;
      return;
    } finally {
      clearTimeout(slow);
      if (running[part] === mine) { panel.box.classList.remove("waiting"); delete running[part]; }
    }
  };

  const refresh = (parts) => {
    write(state);
    update("phase", {here: [{C_W: state.C_W, C_b: state.C_b}]});
    clearTimeout(soon);
    clearInterval(timer);
    if (!parts.includes("table")) soon = setTimeout(train, PATIENCE);
    if (state.activation === "formula" && !state.formula.trim()) {
      message.textContent = "Type a formula in z, such as z * sigmoid(1.7 * z).";
      return Promise.resolve();
    }
    return Promise.all(parts.map(request));
  };

  // --- controls -----------------------------------------------------------------------------
  const toSlider = (name, value) => {
    let [low, high] = settings.ranges[name];
    if (!LOGARITHMIC.has(name)) return Math.round((SLIDER * (value - low)) / (high - low));
    return Math.round((SLIDER * Math.log(value / low)) / Math.log(high / low));
  };
  const fromSlider = (name, place) => {
    const [low, high] = settings.ranges[name], part = place / SLIDER;
    const value = LOGARITHMIC.has(name) ? low * (high / low) ** part : low + part * (high - low);
    return WHOLE.has(name) ? Math.round(value) : Number(value.toPrecision(4));
  };

  const choice = (name, label, options) => {
    const select = made("select", {ariaLabel: label}, ...options.map((value) =>
      made("option", {value, textContent: value})));
    select.addEventListener("change", () => {
      state = {...state, [name]: select.value};
      formula.parentElement.hidden = state.activation !== "formula";
      refresh(name === "activation" ? EVERY : PARTS[name]);
    });
    inputs[name] = select;
    return made("label", {textContent: label}, select);
  };

  const formula = made("input", {type: "text", placeholder: "z * sigmoid(1.7 * z)", maxLength: 200, spellcheck: false});
  let typing = 0;
  formula.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { state = {...state, formula: formula.value}; refresh(EVERY); }, 350);
  });
  const formulaLabel = made("label", {textContent: "formula in z", hidden: true}, formula);
  controls.append(choice("activation", "activation", [...settings.activations, "formula"]), formulaLabel);
  for (const name of ORDER) {
    const output = made("output");
    const slider = made("input", {type: "range", min: 0, max: SLIDER, step: 1, ariaLabel: LABELS[name]});
    slider.dataset.name = name;
    slider.addEventListener("input", () => {
      state = {...state, [name]: fromSlider(name, Number(slider.value))};
      output.textContent = shown(state[name]);
      refresh(PARTS[name]);
    });
    inputs[name] = slider;
    inputs[`${name} output`] = output;
    controls.append(made("label", {textContent: LABELS[name]}, output, slider));
  }
  let critical = [];
  const criticalButton = made("button", {type: "button", textContent: "Go to the critical point", disabled: true});
  criticalButton.addEventListener("click", () => {
    state = {...state, C_W: critical[0].C_W, C_b: critical[0].C_b};
    fill();
    refresh(PARTS.C_W);
  });
  const copies = made("div", {className: "copies"});
  for (const [part, label] of [["python", "Python"], ["command", "command line"], ["toml", "TOML"]]) {
    const button = made("button", {type: "button", textContent: `Copy as ${label}`});
    button.dataset.copy = part;
    button.addEventListener("click", async () => {
      const answer = await ask("copies", state);
      if (answer.error) { message.textContent = answer.error; return; }
      root.dataset.copied = answer[part];
      try {
        await navigator.clipboard.writeText(answer[part]);
        message.textContent = `Copied ${label}.`;
      } catch {
        message.textContent = answer[part];
      }
    });
    copies.append(button);
  }
  const restart = made("button", {type: "button", textContent: "Train the networks again"});
  restart.addEventListener("click", train);
  controls.append(choice("data", "data", settings.data), criticalButton, restart, copies, message);

  const fill = () => {
    for (const name of ORDER) {
      inputs[name].value = toSlider(name, state[name]);
      inputs[`${name} output`].textContent = shown(state[name]);
    }
    inputs.activation.value = state.activation;
    inputs.data.value = state.data;
    formula.value = state.formula;
    formulaLabel.hidden = state.activation !== "formula";
  };

  const load = (values) => {
    const next = {...settings.usual};
    for (const [name, value] of Object.entries(values)) {
      if (!(name in next)) continue;
      const number = Number(value);
      if (name in settings.ranges) { if (Number.isFinite(number)) next[name] = number; }
      else next[name] = String(value);
    }
    if (!settings.activations.includes(next.activation) && next.activation !== "formula") next.activation = settings.usual.activation;
    if (!settings.data.includes(next.data)) next.data = settings.usual.data;
    state = next;
    fill();
    return refresh(EVERY);
  };

  media.addEventListener("change", () => { drawAll(); refresh(EVERY); });
  drawAll();
  load(read()).then(() => { root.dataset.ready = "1"; });
  return {load, get state() { return state; }, get members() { return members; }};
};
