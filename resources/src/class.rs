//! Classes: equal requests share a number.

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::limits::CLASSES_MAX;
use crate::request::Request;

/// The number of a request that is the same on all nodes: xxh3 of its canonical bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClassId(pub u64);

/// The number of a request on one node; 0 is one cpu.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClassIndex(pub u16);

impl ClassIndex {
    pub const ONE_CPU: Self = Self(0);
    /// All requests beyond the bound. Their requests stay with their tasks.
    pub const REST: Self = Self(u16::MAX);
}

impl Request {
    #[must_use]
    pub fn class(&self) -> ClassId {
        ClassId(xxh3_64(&self.encode()))
    }
}

/// The class of a request by its canonical bytes.
#[must_use]
pub fn class_of_bytes(bytes: &[u8]) -> ClassId {
    ClassId(xxh3_64(bytes))
}

/// The requests in use on a node, each under a small number.
#[derive(Debug)]
pub struct Classes {
    entries: Vec<Option<Entry>>,
    by_id: HashMap<ClassId, ClassIndex, foldhash::fast::FixedState>,
}

#[derive(Debug)]
struct Entry {
    id: ClassId,
    request: Request,
    /// Uses; the number is free again after the last one.
    uses: u64,
}

impl Default for Classes {
    fn default() -> Self {
        let mut classes =
            Self { entries: Vec::new(), by_id: HashMap::with_hasher(Default::default()) };
        // This use never ends.
        classes.acquire(&Request::one_cpu());
        classes
    }
}

impl Classes {
    /// The number of a request, for one use; [`Self::release`] ends the use. The answer is
    /// [`ClassIndex::REST`] if the bound is reached, or if another request has the same id.
    pub fn acquire(&mut self, request: &Request) -> ClassIndex {
        if request.is_one_cpu() && !self.entries.is_empty() {
            return ClassIndex::ONE_CPU;
        }
        let id = request.class();
        if let Some(&index) = self.by_id.get(&id) {
            let entry = self.entries[usize::from(index.0)].as_mut().expect("it is in use");
            if entry.request != *request {
                return ClassIndex::REST;
            }
            entry.uses += 1;
            return index;
        }
        let entry = Entry { id, request: request.clone(), uses: 1 };
        let free = self.entries.iter().position(Option::is_none);
        let at = match free {
            Some(at) => at,
            None if self.entries.len() < CLASSES_MAX => {
                self.entries.push(None);
                self.entries.len() - 1
            }
            None => return ClassIndex::REST,
        };
        self.entries[at] = Some(entry);
        let index = ClassIndex(at as u16);
        self.by_id.insert(id, index);
        index
    }

    /// Ends one use of a number.
    pub fn release(&mut self, index: ClassIndex) {
        if index == ClassIndex::ONE_CPU || index == ClassIndex::REST {
            return;
        }
        let slot = self.entries.get_mut(usize::from(index.0));
        debug_assert!(slot.as_deref().is_some_and(Option::is_some), "a number that is not in use");
        let Some(slot) = slot else { return };
        if let Some(entry) = slot {
            entry.uses -= 1;
            if entry.uses == 0 {
                self.by_id.remove(&entry.id);
                *slot = None;
            }
        }
    }

    /// The request of a number in use.
    #[must_use]
    pub fn request(&self, index: ClassIndex) -> Option<&Request> {
        self.entries.get(usize::from(index.0))?.as_ref().map(|entry| &entry.request)
    }

    /// The number of a request in use.
    #[must_use]
    pub fn find(&self, id: ClassId) -> Option<ClassIndex> {
        self.by_id.get(&id).copied()
    }

    /// The numbers in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Never true: one cpu is always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}
