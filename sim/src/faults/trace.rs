//! The trace of a run: a hash of everything that happened, and lines for a human if requested.

#[derive(Default)]
pub(crate) struct Trace {
    hash: u64,
    story: Option<Vec<String>>,
}

impl Trace {
    /// Two runs with the same hash did the same.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
    pub(crate) fn mix(&mut self, number: u64) {
        let mixed = (self.hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash = mixed.rotate_left(23);
    }
    /// Keeps the lines from now on.
    pub(crate) fn keep(&mut self) {
        self.story.get_or_insert_default();
    }
    pub(crate) fn is_told(&self) -> bool {
        self.story.is_some()
    }
    pub(crate) fn add(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(line());
        }
    }
    pub(crate) fn take(&mut self) -> Vec<String> {
        self.story.take().unwrap_or_default()
    }
}
