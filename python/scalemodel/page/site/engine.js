"use strict";
// The engine of scalemodel, compiled to WebAssembly. It throws where a question is malformed: that
// exception leaves its frames behind, so the next question goes to a new instance.

/** Refers to nothing outside: a worker gets the same function as text. */
function makeEngine(module) {
  const NO_SUCH_FILE = 8;
  let exports = null;

  function read(at, size) {
    return new TextDecoder().decode(new Uint8Array(exports.memory.buffer, at, size));
  }

  async function start() {
    const instance = await WebAssembly.instantiate(module, {
      page: {
        failed(at, size) {
          throw new Error(read(at, size));
        },
      },
      wasi_snapshot_preview1: {
        clock_time_get(clock, precision, at) {
          const now = BigInt(Math.round(performance.now() * 1e6));
          new DataView(exports.memory.buffer).setBigUint64(at, now, true);
          return 0;
        },
        fd_write: () => NO_SUCH_FILE,
        fd_seek: () => NO_SUCH_FILE,
        fd_close: () => NO_SUCH_FILE,
      },
    });
    exports = instance.exports;
    exports._initialize();
  }

  /** The answer to a question; rejects with the engine's own sentence. */
  return async function ask(question) {
    if (exports === null) await start();
    try {
      const sent = new TextEncoder().encode(JSON.stringify(question));
      const at = exports.page_question(sent.length);
      new Uint8Array(exports.memory.buffer, at, sent.length).set(sent);
      const size = exports.page_answer();
      return JSON.parse(read(exports.page_text(), size));
    } catch (error) {
      exports = null;
      throw error;
    }
  };
}

function compileEngine() {
  return WebAssembly.compile(Uint8Array.from(atob(ENGINE_CODE), (sign) => sign.charCodeAt(0)));
}

/** The same beside the page, for questions that take longer; a later one waits for those before. */
function makeWorker(module) {
  const body = `${makeEngine}
    let ask;
    onmessage = async ({data}) => {
      if (data.module) { ask = makeEngine(data.module); return; }
      try {
        postMessage({id: data.id, answer: await ask(data.question)});
      } catch (error) {
        postMessage({id: data.id, refused: String(error.message)});
      }
    };`;
  const worker = new Worker(URL.createObjectURL(new Blob([body], {type: "text/javascript"})));
  const waiting = new Map();
  let last = 0;
  worker.onmessage = ({data}) => {
    const [answered, refused] = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.refused === undefined) answered(data.answer);
    else refused(new Error(data.refused));
  };
  worker.postMessage({module});
  return (question) =>
    new Promise((answered, refused) => {
      last += 1;
      waiting.set(last, [answered, refused]);
      worker.postMessage({id: last, question});
    });
}
