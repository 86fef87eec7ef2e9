// Searches for certificates in a worker thread, so that the page stays responsive.
import { ask } from "./request.js";

self.onmessage = async ({ data: { id, request, file } }) => {
  try {
    self.postMessage({ id, answer: await ask(request, file) });
  } catch (error) {
    self.postMessage({ id, error: error instanceof Error ? error.message : String(error) });
  }
};
