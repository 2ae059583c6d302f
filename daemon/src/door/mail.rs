//! Events of an attempt: those that its next turn sends, and the letters of its mailbox that this
//! node has. A letter that a command has taken leaves the mailbox with the next turn.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Mutex, MutexGuard};

use node::Input;
use proto::limits;
use proto::wire::door_response::Body as Answered;
use proto::wire::mail_name::Task as Named;
use proto::wire::{self, Letter, MailName};
use tokio::sync::oneshot;

use crate::door::Door;
use crate::door::refusal::Refusal;
use crate::door::token::Token;
use crate::event_loop::inbox::Local;

/// The events of one attempt.
#[derive(Debug, Default)]
pub(super) struct Mailbag {
    /// Letters that no command has taken, by number.
    letters: BTreeMap<u64, Letter>,
    /// What the next turn consumes and sends, and the bytes of these events.
    taken: BTreeMap<u64, Letter>,
    events: Vec<wire::TurnEvent>,
    bytes: usize,
    /// What the turn under way consumes and sends.
    leaving: (BTreeMap<u64, Letter>, Vec<wire::TurnEvent>),
}

impl Mailbag {
    /// Letters have come. Those that are taken already may come again.
    pub(super) fn read(&mut self, letters: &[Letter]) {
        for letter in letters {
            let number = letter.number;
            if !self.taken.contains_key(&number) && !self.leaving.0.contains_key(&number) {
                self.letters.insert(number, letter.clone());
            }
        }
    }

    /// Takes the first letter of this sender, or of any. `None`: there is none here, or only the
    /// task's home knows the sender.
    pub(super) fn take(&mut self, from: Option<&MailName>) -> Option<Letter> {
        let number = match from.map(|name| name.task) {
            None => *self.letters.first_key_value()?.0,
            Some(Some(Named::Local(local))) => {
                *self.letters.iter().find(|(_, letter)| letter.from == local)?.0
            }
            Some(_) => return None,
        };
        self.take_number(number)
    }

    fn take_number(&mut self, number: u64) -> Option<Letter> {
        let letter = self.letters.remove(&number)?;
        self.taken.insert(number, letter.clone());
        Some(letter)
    }

    /// Takes the first of these letters, which have come for a command that waits.
    pub(super) fn receive(&mut self, letters: &[Letter]) -> Option<Letter> {
        self.read(letters);
        letters.iter().find_map(|letter| self.take_number(letter.number))
    }

    /// Adds an event to the next turn.
    pub(super) fn send(&mut self, to: MailName, data: Vec<u8>) -> Result<(), Refusal> {
        let most = limits::TURN_EVENTS_MAX;
        if self.events.len() >= most || self.bytes + data.len() > limits::TURN_EVENT_BYTES_MAX {
            let bytes = limits::TURN_EVENT_BYTES_MAX;
            let text = format!("more than {most} events, or {bytes} bytes of them, are not sent");
            return Err(Refusal::bad(text, "'starling commit' sends them"));
        }
        self.bytes += data.len();
        self.events.push(wire::TurnEvent { to: Some(to), data });
        Ok(())
    }

    /// What the next turn sends and consumes.
    pub(super) fn leave(&mut self) -> (Vec<wire::TurnEvent>, Vec<u64>) {
        self.leaving = (mem::take(&mut self.taken), mem::take(&mut self.events));
        self.bytes = 0;
        (self.leaving.1.clone(), self.leaving.0.keys().copied().collect())
    }

    /// The turn under way is committed.
    pub(super) fn left(&mut self) {
        self.leaving = Default::default();
    }

    /// The turn under way was refused: nothing of it counts.
    pub(super) fn put_back(&mut self) {
        (self.taken, self.events) = mem::take(&mut self.leaving);
        self.bytes = self.events.iter().map(|event| event.data.len()).sum();
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }
}

/// The commands that ask whether a mailbox takes an event, by ticket.
#[derive(Debug, Default)]
pub(super) struct MailboxQuestions(Mutex<(u64, HashMap<u64, oneshot::Sender<String>>)>);

impl MailboxQuestions {
    fn all(&self) -> MutexGuard<'_, (u64, HashMap<u64, oneshot::Sender<String>>)> {
        self.0.lock().expect("no holder of the questions panics")
    }

    fn ask(&self) -> (u64, oneshot::Receiver<String>) {
        let (sender, answer) = oneshot::channel();
        let mut all = self.all();
        all.0 += 1;
        let ticket = all.0;
        all.1.insert(ticket, sender);
        (ticket, answer)
    }

    pub(super) fn answered(&self, ticket: u64, refused: String) {
        if let Some(sender) = self.all().1.remove(&ticket) {
            let _ = sender.send(refused); // The command may be gone.
        }
    }
}

impl Door {
    /// Adds an event to the next turn, if the mailbox of the other task takes it now.
    pub(super) async fn send(
        &self,
        token: Token,
        send: wire::DoorSend,
    ) -> Result<Answered, Refusal> {
        let most = limits::EVENT_BYTES_MAX;
        if send.data.len() > most {
            let text = format!("the event has {} bytes, at most {most} are sent", send.data.len());
            let hint = "send the name of a file or of a key instead";
            return Err(Refusal::bad(text, hint));
        }
        let to = send.to.ok_or_else(|| Refusal::bad("no task is named", "name the receiver"))?;
        let ((task, attempt), is_committed) = self.attempts().check_receiver(token, &to)?;
        if is_committed {
            let (ticket, answer) = self.mailboxes.ask();
            let bytes = send.data.len() as u32;
            let input = Input::AskMailbox { task, attempt, to, bytes, ticket };
            // If the run loop has ended, so does the answer.
            let _ = self.inputs.send(Local::Input(input));
            match answer.await {
                Ok(refused) if refused.is_empty() => {}
                Ok(refused) => {
                    let (text, hint) = split_hint(&refused);
                    return Err(Refusal::bad(text, hint));
                }
                Err(_) => return Err(Refusal::fenced()),
            }
        }
        self.attempts().send(token, to, send.data)?;
        Ok(Answered::Sent(wire::DoorSent {}))
    }
}

/// A full mailbox is the only refusal that may pass.
fn split_hint(refused: &str) -> (String, &'static str) {
    match refused.split_once("; hint: ") {
        Some((text, _)) => (text.to_owned(), "send again when the task has received some"),
        None => (refused.to_owned(), "nothing was sent to it; earlier events of the turn stay"),
    }
}

/// A letter as the answer to the command that waits for it.
pub(super) fn received(letter: Option<Letter>) -> Answered {
    let letter = letter.map(|letter| wire::DoorLetter { from: letter.from, data: letter.data });
    Answered::Received(wire::DoorReceived { letter })
}

/// The task of a name, where the node knows it.
pub(super) fn is_child(name: &MailName) -> Option<u64> {
    match name.task? {
        Named::Child(ordinal) => Some(ordinal),
        Named::Local(_) | Named::Parent(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proto::LocalId;

    use super::*;

    fn letter(number: u64, from: u64) -> Letter {
        Letter { number, from, to: 0, data: vec![number as u8] }
    }

    fn of(from: u64) -> MailName {
        MailName { task: Some(Named::Local(LocalId(from).0)) }
    }

    fn number(letter: Option<Letter>) -> Option<u64> {
        letter.map(|letter| letter.number)
    }

    #[test]
    fn letters_are_taken_in_order_and_each_once() {
        let mut bag = Mailbag::default();
        bag.read(&[letter(3, 7), letter(5, 8), letter(6, 7)]);
        assert_eq!(number(bag.take(Some(&of(8)))), Some(5));
        assert_eq!(number(bag.take(None)), Some(3));
        assert_eq!(bag.leave().1, [3, 5]);
        bag.read(&[letter(3, 7), letter(6, 7)]);
        assert_eq!(number(bag.take(None)), Some(6), "3 is taken");
        bag.left();
        assert_eq!(number(bag.take(None)), None);
        assert_eq!(number(bag.receive(&[letter(6, 7), letter(9, 7)])), Some(9), "6 is taken");
    }

    #[test]
    fn a_refused_turn_leaves_all_as_it_was() {
        let mut bag = Mailbag::default();
        bag.read(&[letter(3, 7)]);
        bag.take(None).unwrap();
        bag.send(of(7), vec![1; 10]).unwrap();
        let (events, taken) = bag.leave();
        assert_eq!((events.len(), taken.len(), bag.has_events()), (1, 1, false));
        bag.put_back();
        assert!(bag.has_events());
        assert_eq!(bag.leave(), (events, taken));
    }

    #[test]
    fn the_events_of_a_turn_are_bounded() {
        let mut bag = Mailbag::default();
        let full = limits::TURN_EVENT_BYTES_MAX / limits::EVENT_BYTES_MAX;
        for _ in 0..full {
            bag.send(of(7), vec![0; limits::EVENT_BYTES_MAX]).unwrap();
        }
        assert!(bag.send(of(7), vec![0]).is_err());
        bag.leave();
        bag.left();
        for _ in 0..limits::TURN_EVENTS_MAX {
            bag.send(of(7), Vec::new()).unwrap();
        }
        assert!(bag.send(of(7), Vec::new()).is_err());
    }
}
