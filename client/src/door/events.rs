//! Events between the tasks of a job, inside a running task.

use std::time::Duration;

use proto::{LocalId, wire};
use wire::door_request::Body as Asked;
use wire::door_response::Body as Answered;
use wire::mail_name::Task as Named;

use super::{Door, DoorError};

/// The sender or the receiver of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventPeer {
    /// A child of this task, by its ordinal from 0.
    Child(u64),
    /// Any task of the job.
    Task(LocalId),
    /// The task that has spawned this one.
    Parent,
}

/// A received event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskEvent {
    /// The task that has sent it.
    pub from: LocalId,
    /// Its bytes.
    pub data: Vec<u8>,
}

impl Door {
    /// Sends an event to another task. It leaves when the attempt's next turn is committed.
    ///
    /// # Errors
    /// The job has no such task, or the task has ended, or its mailbox is full, or a limit is
    /// exceeded, or the node is gone.
    pub fn send_event(&self, to: EventPeer, data: Vec<u8>) -> Result<(), DoorError> {
        match self.call(Asked::Send(wire::DoorSend { to: Some(to.to_record()), data }))? {
            Answered::Sent(wire::DoorSent {}) => Ok(()),
            _ => Err(DoorError::BadAnswer),
        }
    }

    /// Receives the next event of one task, or of any. If there is none yet, this commits with the
    /// state, gives the slot back and waits. `None`: there was none in time.
    ///
    /// # Errors
    /// The job has no such task, or a limit is exceeded, or the node is gone.
    pub fn receive_event(
        &self,
        from: Option<EventPeer>,
        timeout: Option<Duration>,
        state: Option<Vec<u8>>,
    ) -> Result<Option<TaskEvent>, DoorError> {
        let from = from.map(EventPeer::to_record);
        let timeout = timeout.map(|timeout| timeout.as_nanos().try_into().unwrap_or(u64::MAX));
        let call = wire::DoorReceive { from, timeout_ns: timeout, state };
        match self.call(Asked::Receive(call))? {
            Answered::Received(received) => Ok(received
                .letter
                .map(|letter| TaskEvent { from: LocalId(letter.from), data: letter.data })),
            _ => Err(DoorError::BadAnswer),
        }
    }
}

impl EventPeer {
    fn to_record(self) -> wire::MailName {
        let task = match self {
            Self::Child(child) => Named::Child(child),
            Self::Task(local) => Named::Local(local.0),
            Self::Parent => Named::Parent(true),
        };
        wire::MailName { task: Some(task) }
    }
}
