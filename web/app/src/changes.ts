// The changes that a page may ask for: which ones an object has, and their texts. Without a document.

import type { Job, Node } from "./types";

/** A change of one object. */
export interface Offer {
  /** The last part of its address, and the word of its button. */
  what: "cancel" | "retry" | "drain" | "pause" | "resume";
  path: string;
  /** The object, as the server wants it named once more. */
  confirm: string;
  /** The object for people. It may have text of users. */
  object: string;
  effect: string;
}

const ENDED = ["finished", "failed", "cancelled", "lost"];

const of = (
  what: Offer["what"], kind: "jobs" | "nodes", confirm: string, object: string, effect: string,
): Offer => ({ what, path: `api/v1/${kind}/${encodeURIComponent(confirm)}/${what}`, confirm, object, effect });

export const jobOffers = (job: Job): Offer[] => {
  const object = `job ${job.job}${job.name && ` ${job.name}`}`;
  const open = Math.max(0, job.total - job.done - job.failed - job.cancelled - job.skipped);
  const again = job.failed + job.cancelled + job.skipped;
  if (!ENDED.includes(job.state)) {
    return [of("cancel", "jobs", job.job, object, `Its open tasks end as cancelled: ${open} now. What is done stays.`)];
  }
  if (again === 0 || job.state === "lost") return [];
  return [of("retry", "jobs", job.job, object, `Its failed, skipped and cancelled tasks run again: ${again} of ${job.total}.`)];
};

export const nodeOffers = (node: Node): Offer[] => {
  if (node.state !== "up") return [];
  const name = `n${node.id}`, object = `node ${name}${node.host && ` on ${node.host}`}`;
  return [
    node.paused
      ? of("resume", "nodes", name, object, "It starts tasks again.")
      : of("pause", "nodes", name, object, "It starts no more tasks until it is resumed. Tasks that run go on."),
    of("drain", "nodes", name, object, "It leaves the cluster when its tasks and data are elsewhere."),
  ];
};

export const title = (offer: Offer): string => `${offer.what[0]?.toUpperCase()}${offer.what.slice(1)} ${offer.object}`;
