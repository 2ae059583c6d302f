//! The positions of the keys by which a task of a workflow file asks for resources.

use super::raw::RawTask;
use crate::graph::needs::{Needs, Requested};

/// The position of each key; `None`: it is not given.
pub(super) struct Places {
    cpus: Option<usize>,
    memory: Option<usize>,
    gpus: Option<usize>,
    /// One for each entry.
    resources: Vec<Option<usize>>,
    labels: Option<usize>,
    variants: Option<usize>,
    patience: Option<usize>,
}

impl Places {
    pub(super) fn of(raw: &RawTask) -> Self {
        Self {
            cpus: raw.cpus.as_ref().map(|value| value.span().start),
            memory: raw.memory.as_ref().map(|value| value.span().start),
            gpus: raw.gpus.as_ref().map(|value| value.span().start),
            resources: raw.resources.0.iter().map(|(_, value)| value.at).collect(),
            labels: raw.labels.as_ref().map(|value| value.span().start),
            variants: raw.variants.as_ref().map(|value| value.span().start),
            patience: raw.patience.as_ref().map(|value| value.span().start),
        }
    }

    /// The request of a task that holds this number of nodes, or why there is none, and where.
    pub(super) fn request(
        &self,
        needs: Needs,
        nodes: u32,
    ) -> Result<Requested, (Option<usize>, String)> {
        let request = needs.clone().of_gang(nodes, self.cpus.is_some());
        let request = request.and_then(|needs| needs.request());
        request.map_err(|reason| (self.of_fault(&needs), reason))
    }

    /// Where needs that are refused are wrong: the key that is refused even alone, or else the
    /// first one.
    fn of_fault(&self, needs: &Needs) -> Option<usize> {
        let without_patience = Needs { patience: None, ..needs.clone() };
        if self.patience.is_some() && without_patience.request().is_ok() {
            return self.patience;
        }
        let none = Needs::default;
        let mut each = vec![
            (self.cpus, Needs { cpus: needs.cpus.clone(), ..none() }),
            (self.memory, Needs { memory: needs.memory.clone(), ..none() }),
            (self.gpus, Needs { gpus: needs.gpus.clone(), ..none() }),
            (self.labels, Needs { labels: needs.labels.clone(), ..none() }),
            (self.variants, Needs { variants: needs.variants.clone(), ..none() }),
        ];
        let resources = self.resources.iter().zip(&needs.resources);
        each.extend(
            resources.map(|(&at, text)| (at, Needs { resources: vec![text.clone()], ..none() })),
        );
        let given = || each.iter().filter(|(at, _)| at.is_some());
        let wrong = given().find(|(_, alone)| alone.request().is_err());
        wrong.or_else(|| given().min_by_key(|(at, _)| *at)).and_then(|(at, _)| *at)
    }
}
