//! States that a call commits, and events that it sends.

use client::{Door, DoorError, EventPeer};
use proto::LocalId;
use proto::limits::TURN_STATE_BYTES_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::{Cx, Error, Result, json};

/// The way to the node's door, and the state with which the attempt began.
#[derive(Debug)]
pub(crate) struct Entered {
    door: Door,
    /// The last committed state, as JSON.
    state: Option<Vec<u8>>,
}

impl Cx {
    /// The last state that an attempt of this call has committed. `None`: there is none, so the
    /// call begins at its beginning.
    ///
    /// # Errors
    /// The state is of another type, or the node does not answer.
    pub fn committed<S: DeserializeOwned>(&mut self) -> Result<Option<S>> {
        if self.runs_inside() {
            return Ok(None); // It is no task of its own here.
        }
        let Some(state) = &self.entered()?.state else { return Ok(None) };
        let state = json::decode(state);
        state.map(Some).map_err(|text| Error::Value { what: "the committed state".into(), text })
    }

    /// Commits a state, together with the events sent so far. If the call runs again,
    /// [`Self::committed`] returns it. Returns when the home of the task has it.
    ///
    /// # Errors
    /// The state is no JSON, or has more than 64 KiB of it; or the attempt is over, or the node
    /// does not answer.
    pub fn commit<S: Serialize + ?Sized>(&mut self, state: &S) -> Result<()> {
        let bytes = json::encode(state)
            .map_err(|text| Error::Value { what: "the state to commit".into(), text })?;
        if bytes.len() > TURN_STATE_BYTES_MAX {
            let most = TURN_STATE_BYTES_MAX;
            let text = format!("the state to commit has {} bytes of JSON, of {most}", bytes.len());
            return Err(Error::TooLarge(text));
        }
        if self.runs_inside() {
            return Ok(()); // If it runs again, it does so within the call that waits for it.
        }
        let entered = self.entered()?;
        entered.door.commit(Some(bytes.clone()), false).map_err(of_door)?;
        entered.state = Some(bytes);
        Ok(())
    }

    /// Sends an event to a task of the same job: `3.17`, or `JOB.3.17` as [`Self::task`] has it. It
    /// leaves with the next commit, or with the good end of this call, and arrives once.
    ///
    /// # Errors
    /// The job has no such task, or it has ended, or its mailbox is full; or the node does not
    /// answer; or this call runs within the wait of its parent.
    pub fn send(&mut self, to: &str, data: impl Into<Vec<u8>>) -> Result<()> {
        let to = self.receiver(to)?;
        if self.runs_inside() {
            let text = "a call that runs within the wait of its parent sends no events";
            return Err(Error::Foreign(text));
        }
        let door = &self.entered()?.door;
        door.send_event(EventPeer::Task(to), data.into()).map_err(of_door)
    }

    /// The task of this job with this id.
    fn receiver(&self, text: &str) -> Result<LocalId> {
        let own = self.task();
        let (job, _) = own.split_once('.').unwrap_or_default();
        let local = match text.matches('.').count() {
            2 => {
                let of_own = text.strip_prefix(job).and_then(|rest| rest.strip_prefix('.'));
                of_own.ok_or(Error::Foreign("an event goes to a task of the same job"))?
            }
            _ => text,
        };
        local.parse::<LocalId>().map_err(Error::Text)
    }

    fn entered(&mut self) -> Result<&mut Entered> {
        if self.entered.is_none() {
            let (answer, state) = self.ask(&json!({ "ask": "enter" }), &[])?;
            let text = |key: &str| answer[key].as_str().unwrap_or_default();
            let door = Door::new(text("door"), text("token")).map_err(of_door)?;
            let state = answer["has_state"].as_bool().unwrap_or(false).then_some(state);
            self.entered = Some(Entered { door, state });
        }
        Ok(self.entered.as_mut().expect("it was just set"))
    }
}

fn of_door(error: DoorError) -> Error {
    Error::Text(error.to_string())
}
