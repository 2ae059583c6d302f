//! What a task asked for, as `task info` shows it.

use proto::wire::Explanation;
use resources::Request;
use serde::Serialize;

/// The needs of a task, and its place in the order of tasks.
#[derive(Default, Debug, PartialEq, Serialize)]
pub(super) struct Asked {
    /// Of each variant, the preferred one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    request: Vec<String>,
    /// Nodes that the task holds at once. Present only for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    /// Absent: the nodes rank the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
}

impl Asked {
    /// Empty if the home of the task does not know it, or if the request is of a later version.
    pub(super) fn of(told: &Explanation) -> Self {
        let Some(asked) = &told.asked else { return Self::default() };
        let request = match asked.request.is_empty() {
            true => Ok(Request::cpus(asked.cpus.max(1))),
            false => Request::decode(&asked.request),
        };
        let Ok(request) = request else { return Self::default() };
        Self {
            request: request.variants().iter().map(ToString::to_string).collect(),
            nodes: (asked.nodes > 1).then_some(asked.nodes),
            priority: Some(told.priority),
            rank: (told.rank > 0).then_some(told.rank),
        }
    }

    pub(super) fn line(&self) -> Option<String> {
        let priority = self.priority?;
        let mut parts = vec![format!("asked for: {}", self.request.join(" | "))];
        parts.extend(self.nodes.map(|nodes| format!("on each of {nodes} nodes")));
        parts.push(format!("priority {priority}"));
        parts.extend(self.rank.map(|rank| format!("rank {rank}")));
        Some(parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use proto::wire::ClassDemand;

    use super::*;

    fn told(asked: ClassDemand) -> Asked {
        Asked::of(&Explanation {
            asked: Some(asked),
            priority: 3,
            rank: 7,
            ..Explanation::default()
        })
    }

    #[test]
    fn needs_are_told_with_their_place_in_the_order() {
        let plain = told(ClassDemand { cpus: 2, ..ClassDemand::default() });
        assert_eq!(plain.line().as_deref(), Some("asked for: cpus=2; priority 3; rank 7"));
        let request = Request::cpus(4).encode();
        let gang = told(ClassDemand { request, nodes: 2, ..ClassDemand::default() });
        let line = "asked for: cpus=4; on each of 2 nodes; priority 3; rank 7";
        assert_eq!(gang.line().as_deref(), Some(line));
    }

    #[test]
    fn an_unknown_request_is_left_out() {
        let odd = told(ClassDemand { request: vec![255; 3], ..ClassDemand::default() });
        assert_eq!((odd.line(), odd), (None, Asked::default()));
        assert_eq!(Asked::of(&Explanation::default()), Asked::default());
    }
}
