// The studio in a notebook: the same module, with messages to the kernel instead of requests.
const render = ({model, el}) => {
  const waiting = new Map();
  let number = 0;
  model.on("msg:custom", (answer) => {
    const settle = waiting.get(answer.number);
    waiting.delete(answer.number);
    settle?.(answer);
  });
  const ask = (part, state, signal) => new Promise((resolve, reject) => {
    const mine = ++number;
    waiting.set(mine, resolve);
    signal?.addEventListener("abort", () => {
      waiting.delete(mine);
      reject(new DOMException("overtaken", "AbortError"));
    });
    model.send({part, state, number: mine});
  });
  const write = (state) => { model.set("state", state); model.save_changes(); };
  const settings = model.get("settings");
  el.append(Object.assign(document.createElement("style"), {textContent: model.get("style")}));
  const place = document.createElement("div");
  el.append(place);
  mount(place, {settings, ask, read: () => model.get("state"), write, vegaEmbed: window.vegaEmbed});
};
export default {render};
