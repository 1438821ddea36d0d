// The studio as a page: state in the address, answers from the server that sent this file.
import "./vega.js";
import {mount} from "./studio.js";

const settings = await (await fetch("settings.json")).json();
const windowName = crypto.randomUUID();
let number = 0;

const ask = async (part, state, signal) => {
  const query = new URLSearchParams({...state, window: windowName, number: String(++number)});
  const answer = await fetch(`api/${part}?${query}`, {signal});
  if (answer.status === 409) throw new DOMException("overtaken", "AbortError");
  if (!answer.ok) throw new Error(`the studio answered ${answer.status}`);
  return answer.json();
};

const read = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const write = (state) => {
  const changed = Object.entries(state).filter(([key, value]) => value !== settings.usual[key]);
  history.replaceState(null, "", `#${new URLSearchParams(changed)}`);
};

const studio = mount(document.getElementById("studio"), {settings, ask, read, write, vegaEmbed});
addEventListener("hashchange", () => studio.load(read()));
