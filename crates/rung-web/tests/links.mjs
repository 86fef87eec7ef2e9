// Fuzzes links: every link gives a view, and its model either opens within the size limit or fails with a message.
// node links.mjs [SECONDS]
import { parseAddress, formatAddress, modelFromLink, modelToLink } from "../page/state.js";

const seconds = Number(process.argv[2] ?? 2);
const VIEWS = ["gallery", "designer", "compare", "certificate", "pass", "learn", "runs"];
const MAX_CONFIG_BYTES = 1 << 20;
const config = JSON.stringify({ model_type: "llama", num_hidden_layers: 2, hidden_size: 8, num_attention_heads: 2 });
const packed = await modelToLink({ config: { text: config, name: "config.json" } });
// Zeros: one byte more than the limit, compressed to about a kilobyte.
const large = new Blob([new Uint8Array(MAX_CONFIG_BYTES + 1)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
const bomb = Buffer.from(await new Response(large).arrayBuffer()).toString("base64url");
const seeds = [
  "",
  "#/1/designer?model=preset:qwen3.5-9b&edits=every%3D4&context=131072",
  "#/1/compare?models=a|b&context=8192",
  "#/1/designer?model=stack:gdn%20full&heads=2&head_dim=64&bits=16",
  formatAddress("designer", packed),
  `#/1/designer?model=config:${bomb}`,
  "#/2/designer",
  "#/1/__proto__?constructor=1&__proto__=2",
];

// A seeded generator, so that every run has the same mutations.
let state = 1;
const randomBelow = (end) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * end);
};
const LETTERS = "#/?&=%:|+-_.0123456789azAZ \u0000é\ud800";
function mutate(text) {
  let letters = [...text];
  for (let count = randomBelow(4); count >= 0; count -= 1) {
    const position = randomBelow(letters.length + 1);
    const other = seeds[randomBelow(seeds.length)];
    const kind = randomBelow(4);
    if (kind === 0) letters.splice(position, 1, LETTERS[randomBelow(LETTERS.length)]);
    if (kind === 1) letters.splice(position, randomBelow(8));
    if (kind === 2) letters.splice(position, 0, ...other.slice(randomBelow(other.length), randomBelow(other.length)));
    if (kind === 3) letters = letters.slice(0, position);
  }
  return letters.join("");
}

const counts = { links: 0, problems: 0, models: 0, refused: 0 };
async function check(link) {
  const address = parseAddress(link);
  if (!VIEWS.includes(address.view)) throw new Error(`view ${address.view} of ${JSON.stringify(link)}`);
  if (Object.getPrototypeOf(address.values) !== Object.prototype) throw new Error(`values of ${JSON.stringify(link)}`);
  counts.links += 1;
  if (address.problem !== undefined) {
    counts.problems += 1;
    return;
  }
  const reparsed = parseAddress(formatAddress(address.view, address.values));
  const expected = Object.fromEntries(Object.entries(address.values).filter(([, value]) => value !== ""));
  if (reparsed.view !== address.view || JSON.stringify(reparsed.values) !== JSON.stringify(expected)) {
    throw new Error(`${JSON.stringify(link)} is written as ${JSON.stringify(formatAddress(address.view, address.values))}`);
  }
  try {
    const model = await modelFromLink(address.values);
    if (model && "config" in model && model.config.text.length > MAX_CONFIG_BYTES) throw new RangeError("too large");
    counts.models += model ? 1 : 0;
  } catch (error) {
    if (error instanceof RangeError || error instanceof ReferenceError) throw error;
    counts.refused += 1;
  }
}

for (const seed of seeds) await check(seed);
if (counts.refused !== 1) throw new Error(`expected the large model alone to be refused, found ${counts.refused}`);
for (const end = Date.now() + 1000 * seconds; Date.now() < end; ) await check(mutate(seeds[randomBelow(seeds.length)]));
console.log(JSON.stringify(counts));
