// Buttons for changes, and the question before each one. They are absent unless the server allows changes.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";
import { type Offer, title } from "./changes";
import { plain } from "./format";
import { Problem, askChange, look, overview } from "./state";

/** The change that is asked about, with the button that has asked. */
const asked = signal<{ offer: Offer; opener: HTMLElement } | null>(null);
const isRunning = signal(false);
/** The answer to the last change. */
const told = signal<{ text: string; hint: string; isBad: boolean } | null>(null);

/** A question is open: keys of the page have no meaning. */
export const isAsking = (): boolean => asked.value !== null;

/** For another page: a question or an answer is about the page before. */
export const forgetChange = (): void => {
  asked.value = null;
  told.value = null;
};

const allowed = (): boolean => overview.value?.allows_changes === true;

/** The buttons of one object. */
export const Offers = ({ offers }: { offers: Offer[] }): JSX.Element | null => allowed() && offers.length > 0 ? (
  <span class="buttons">
    {offers.map((offer) => (
      <button key={offer.what} type="button" class="change" aria-label={plain(title(offer))} aria-haspopup="dialog" disabled={isRunning.value}
        onClick={(event) => {
          told.value = null;
          asked.value = { offer, opener: event.currentTarget };
        }}>{title({ ...offer, object: "" }).trim()}</button>
    ))}
  </span>
) : null;

/** Gives a lost focus back, after the buttons are drawn: to the one that has asked, or to the content if it is absent then. */
const giveBack = (opener: HTMLElement | null): void => {
  setTimeout(() => {
    if (document.activeElement && document.activeElement !== document.body) return;
    const isThere = opener?.isConnected && !(opener as HTMLButtonElement).disabled;
    (isThere ? opener : document.getElementById("main"))?.focus();
  });
};

const make = async (offer: Offer): Promise<void> => {
  isRunning.value = true;
  try {
    const { text } = await askChange(offer.path, offer.confirm);
    told.value = { text, hint: "", isBad: false };
  } catch (error) {
    const problem = error instanceof Problem ? error : new Problem(0, String(error), "");
    told.value = { text: `${title(offer)}: ${problem.message}`, hint: problem.hint, isBad: true };
  }
  isRunning.value = false;
  if (asked.value?.offer === offer) asked.value = null;
  await look();
  // An object that has changed may not have this button any more.
  giveBack(null);
};

const Question = ({ offer, opener }: { offer: Offer; opener: HTMLElement }): JSX.Element => {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    shown?.querySelector<HTMLElement>(".back")?.focus();
    return () => {
      shown?.close();
      giveBack(opener);
    };
  }, []);
  return (
    <dialog ref={dialog} class="panel question" tabIndex={-1} aria-labelledby="h-question" aria-describedby="question-effect"
      onCancel={(event) => {
        event.preventDefault();
        asked.value = null;
      }}>
      <h2 id="h-question">{plain(title(offer))}?</h2>
      <p id="question-effect">{offer.effect}</p>
      <div class="buttons">
        <button type="button" disabled={isRunning.value} onClick={() => {
          dialog.current?.focus();
          void make(offer);
        }}>{isRunning.value ? "Asking the nodes" : plain(title(offer))}</button>
        <button type="button" class="back" onClick={() => { asked.value = null; }}>Back</button>
      </div>
    </dialog>
  );
};

/** The question that is open, and the answer to the last change. */
export const ChangeArea = (): JSX.Element | null => allowed() ? (
  <>
    <div role="status" aria-live="polite" class="told">
      {told.value && (
        <p class={told.value.isBad ? "warning" : "panel"}>
          {told.value.isBad && <span aria-hidden="true">⚠ </span>}{plain(told.value.text)}
          {told.value.hint && <span class="hint"> ({plain(told.value.hint)})</span>}
        </p>
      )}
    </div>
    {asked.value && <Question key={asked.value.offer.path} {...asked.value} />}
  </>
) : null;
