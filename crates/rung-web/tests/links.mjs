// Links of any form: the page reads each as a view, and a model in one either opens within bounds or fails with a sentence.
// node links.mjs [SECONDS]
import { read, write, modelFromLink, modelToLink } from "../page/state.js";

const seconds = Number(process.argv[2] ?? 2);
const VIEWS = ["gallery", "designer", "compare", "certificate", "pass", "learn", "runs"];
const MOST_CONFIG = 1 << 20;
const config = JSON.stringify({ model_type: "llama", num_hidden_layers: 2, hidden_size: 8, num_attention_heads: 2 });
const packed = await modelToLink({ config: { text: config, name: "config.json" } });
// A mebibyte and a bit of zeros, in about a kilobyte.
const large = new Blob([new Uint8Array(MOST_CONFIG + 1)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
const bomb = Buffer.from(await new Response(large).arrayBuffer()).toString("base64url");
const seeds = [
  "",
  "#/1/designer?model=preset:qwen3.5-9b&edits=every%3D4&context=131072",
  "#/1/compare?models=a|b&context=8192",
  "#/1/designer?model=stack:gdn%20full&heads=2&head_dim=64&bits=16",
  write("designer", packed),
  `#/1/designer?model=config:${bomb}`,
  "#/2/designer",
  "#/1/__proto__?constructor=1&__proto__=2",
];

// The same numbers in every run.
let number = 1;
const below = (end) => {
  number = (Math.imul(number, 1664525) + 1013904223) >>> 0;
  return Math.floor((number / 2 ** 32) * end);
};
const LETTERS = "#/?&=%:|+-_.0123456789azAZ \u0000é\ud800";
function mutate(text) {
  let letters = [...text];
  for (let count = below(4); count >= 0; count -= 1) {
    const at = below(letters.length + 1);
    const other = seeds[below(seeds.length)];
    const kind = below(4);
    if (kind === 0) letters.splice(at, 1, LETTERS[below(LETTERS.length)]);
    if (kind === 1) letters.splice(at, below(8));
    if (kind === 2) letters.splice(at, 0, ...other.slice(below(other.length), below(other.length)));
    if (kind === 3) letters = letters.slice(0, at);
  }
  return letters.join("");
}

const counts = { links: 0, problems: 0, models: 0, refused: 0 };
async function check(link) {
  const place = read(link);
  if (!VIEWS.includes(place.view)) throw new Error(`view ${place.view} of ${JSON.stringify(link)}`);
  if (Object.getPrototypeOf(place.values) !== Object.prototype) throw new Error(`values of ${JSON.stringify(link)}`);
  counts.links += 1;
  if (place.problem !== undefined) {
    counts.problems += 1;
    return;
  }
  const again = read(write(place.view, place.values));
  const kept = Object.fromEntries(Object.entries(place.values).filter(([, value]) => value !== ""));
  if (again.view !== place.view || JSON.stringify(again.values) !== JSON.stringify(kept)) {
    throw new Error(`${JSON.stringify(link)} is written as ${JSON.stringify(write(place.view, place.values))}`);
  }
  try {
    const model = await modelFromLink(place.values);
    if (model && "config" in model && model.config.text.length > MOST_CONFIG) throw new RangeError("too large");
    counts.models += model ? 1 : 0;
  } catch (error) {
    if (error instanceof RangeError || error instanceof ReferenceError) throw error;
    counts.refused += 1;
  }
}

for (const seed of seeds) await check(seed);
if (counts.refused !== 1) throw new Error(`expected the large model alone to be refused, found ${counts.refused}`);
for (const end = Date.now() + 1000 * seconds; Date.now() < end; ) await check(mutate(seeds[below(seeds.length)]));
console.log(JSON.stringify(counts));
