// Figures and texts for people.

/** Text that could reorder or hide its neighbours is shown escaped. It is never markup. */
export const plain = (text: string): string =>
  text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g,
    (letter) => `\\u{${letter.charCodeAt(0).toString(16)}}`);

export const count = (n: number): string => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ",");

export const number = (n: number, noun: string): string => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

export const seconds = (s: number): string => {
  if (!Number.isFinite(s)) return "-";
  if (s === 0) return "0 s";
  if (s < 0.001) return `${Math.round(s * 1e6)} us`;
  if (s < 1) return `${(s * 1e3).toFixed(s < 0.1 ? 1 : 0)} ms`;
  if (s < 120) return `${s.toFixed(s < 10 ? 2 : 1)} s`;
  if (s < 7200) return `${(s / 60).toFixed(1)} min`;
  return `${(s / 3600).toFixed(1)} h`;
};

export const bytes = (n: number): string => {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (n >= 1000 && at < units.length - 1) {
    n /= 1000;
    at++;
  }
  return `${at === 0 ? n : n.toFixed(n < 10 ? 1 : 0)} ${units[at]}`;
};

export const percent = (share: number): string => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

export const clock = (s: number): string => new Date(s * 1000).toLocaleTimeString();

export const moment = (s: number): string => (s > 0 ? new Date(s * 1000).toLocaleString() : "-");
