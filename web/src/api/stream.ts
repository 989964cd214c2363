/**
 * The stream of a browser, in a worker that all its tabs share: a stream holds a connection, and
 * over HTTP/1.1 a browser has six of them to a service. The worker ends with the last tab.
 */
import { useService } from "./http.ts";
import { type Listener, listen } from "./live.ts";

/** A call of a tab's listener, as it goes through a port. */
export type Told = { [Name in keyof Listener]: [name: Name, ...told: Parameters<Listener[Name]>] }[keyof Listener];
/** Where the service is, the token to show it ("" for the cookie), and true if the cookie is new. */
export type Service = [base: string, token: string, anew: boolean];

interface Port {
  onmessage: ((message: MessageEvent<Service | null>) => void) | null;
  postMessage: (told: Told) => void;
}

/** Ports of tabs that listen; one whose tab died swallows what it is told. */
const ports = new Set<Port>();
let stop: AbortController | null = null;
let open = false;

const tell = (...told: Told): void => ports.forEach((port) => port.postMessage(told));

const listener: Listener = {
  heard: () => ((open = true), tell("heard")),
  event: (event) => tell("event", event),
  measured: (jobs) => tell("measured", jobs),
  rows: (changes) => tell("rows", changes),
  lists: (names) => tell("lists", names),
  lost(why) {
    open = false;
    tell("lost", why);
    if (why?.kind === "signed-out") end();
  },
};

/** Tabs that sign in again join again. */
function end(): void {
  stop?.abort();
  stop = null;
  open = false;
  ports.clear();
}

function take(port: Port): void {
  port.onmessage = ({ data: service }) => {
    if (service) {
      const [base, token, anew] = service;
      // The stream of who was signed in before ends for all tabs.
      if (anew && stop) {
        stop.abort();
        stop = null;
        listener.lost(null);
      }
      ports.add(port);
      if (open) port.postMessage(["heard"]);
      if (stop) return;
      useService(base, token);
      stop = new AbortController();
      void listen(listener, stop.signal);
    } else if (ports.delete(port) && ports.size === 0) end();
  };
}

if ("onconnect" in self) self.onconnect = ({ ports: [port] }: MessageEvent) => take(port as Port);
else take(self);
