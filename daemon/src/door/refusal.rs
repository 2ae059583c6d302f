//! The reasons why the door refuses a request: one line each, with a hint.

use proto::wire;

/// A request that cannot be served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    why: wire::DoorRefusal,
    text: String,
    hint: &'static str,
}

impl Refusal {
    pub(crate) fn no_token() -> Self {
        Self {
            why: wire::DoorRefusal::NoToken,
            text: "no running task of this node has this token".to_owned(),
            hint: "STARLING_TOKEN is valid only inside its task, and until the task ends",
        }
    }

    pub(crate) fn fenced() -> Self {
        Self {
            why: wire::DoorRefusal::Fenced,
            text: "fenced: this attempt of the task counts no more".to_owned(),
            hint: "another attempt has taken its place, or the task was cancelled",
        }
    }

    pub(crate) fn busy() -> Self {
        Self {
            why: wire::DoorRefusal::Busy,
            text: "too many commands have a connection to this node".to_owned(),
            hint: "call again later, or spawn and await several tasks in one call",
        }
    }

    pub(crate) fn bad(text: impl Into<String>, hint: &'static str) -> Self {
        Self { why: wire::DoorRefusal::BadRequest, text: text.into(), hint }
    }

    #[cfg(test)]
    pub(crate) fn why(&self) -> wire::DoorRefusal {
        self.why
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl From<Refusal> for wire::DoorResponse {
    fn from(refusal: Refusal) -> Self {
        let Refusal { why, text, hint } = refusal;
        let refused = wire::DoorRefused { why: why as i32, text, hint: hint.to_owned() };
        Self { body: Some(wire::door_response::Body::Refused(refused)) }
    }
}
