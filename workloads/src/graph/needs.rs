//! The needs of a task as texts, and its request.

use std::time::Duration;

use proto::wire;
use resources::{Amount, Name, Policy, Quantity, Request, RequestError, Variant, Want};
use resources::{parse_variant, parse_want};

/// The resources that a task asks for, as its user wrote them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// `2`, `all`, `4 tight!`; empty: 1.
    pub cpus: String,
    pub gpus: String,
    pub memory: String,
    /// `NAME=AMOUNT`, with a policy or without.
    pub resources: Vec<String>,
    pub labels: Vec<String>,
    /// `cpus=2, gpus=1, label=avx512`: further variants, or all of them if nothing else is given.
    pub variants: Vec<String>,
    /// How long a task waits for its first variant before it takes a later one; `None`: one
    /// second.
    pub patience: Option<Duration>,
}

/// How long a task waits for the first variant that the cluster offers, unless its user says
/// otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Why a time request of zero is refused.
#[doc(hidden)]
pub const TIME_REQUEST_OF_0: &str = "a time request of 0 asks for nothing; leave it out";

/// The needs in the form of a spec.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Requested {
    /// Of the variant with the fewest.
    pub cpus: u32,
    /// 0: none asked for.
    pub memory_bytes: u64,
    /// Empty: cpus alone.
    pub request: Vec<u8>,
}

impl Needs {
    /// Refuses amounts of memory that lack their unit: no command runs in less than 1 MiB.
    fn check_memory(&self) -> Result<(), String> {
        let in_variants = self.variants.iter().flat_map(|variant| variant.split(','));
        let named = self.resources.iter().map(String::as_str).chain(in_variants);
        let named = named.filter_map(|part| {
            let (name, amount) = part.split_once('=')?;
            (name.trim() == "memory").then_some(amount)
        });
        for text in named.chain([self.memory.as_str()]).map(str::trim) {
            let is_bare = text.ends_with(|letter: char| letter.is_ascii_digit());
            let amount = text.parse::<Amount>().ok().filter(|it| is_bare && !it.is_zero());
            if amount.is_some_and(|amount| amount.whole_part() < 1 << 20) {
                let bytes = if text == "1" { "byte" } else { "bytes" };
                return Err(format!(
                    "memory={text}: that is {text} {bytes}; write {text}MiB or so"
                ));
            }
        }
        Ok(())
    }

    fn first(&self) -> Result<Option<Variant>, RequestError> {
        let mut wants = Vec::new();
        for (name, text) in [("cpus", &self.cpus), ("gpus", &self.gpus), ("memory", &self.memory)] {
            if !text.is_empty() {
                wants.push(parse_want(&format!("{name}={text}"))?);
            }
        }
        for text in &self.resources {
            wants.push(parse_want(text)?);
        }
        let labels = self.labels.iter().map(|label| Name::label(label));
        let labels = labels.collect::<Result<Vec<_>, _>>()?;
        if wants.is_empty() && labels.is_empty() && !self.variants.is_empty() {
            return Ok(None);
        }
        Variant::new(wants, labels, 1).map(Some)
    }

    /// The needs of a task on this number of nodes. A gang without needs holds whole nodes, unless
    /// its user has given cpus elsewhere. It waits for no variant.
    pub(crate) fn of_gang(mut self, nodes: u32, has_cpus: bool) -> Result<Self, String> {
        if nodes < 2 {
            return Ok(self);
        }
        if self.patience.is_some_and(|patience| !patience.is_zero()) {
            return Err(
                "a task on several nodes has no patience: it takes any variant at once".to_owned()
            );
        }
        if !has_cpus && self == Self::default() {
            self.cpus = "all".to_owned();
        }
        Ok(self)
    }

    /// The request of these needs, or the reason why there is none.
    pub fn request(&self) -> Result<Requested, String> {
        self.check_memory()?;
        let variants = || {
            let mut variants: Vec<Variant> = self.first()?.into_iter().collect();
            for text in &self.variants {
                variants.push(parse_variant(text)?);
            }
            Request::new(variants)
        };
        let request = variants().map_err(|error: RequestError| error.to_string())?;
        if self.patience.is_some() && request.variants().len() < 2 {
            return Err("patience is between variants, and there is only one".to_owned());
        }
        let request = request.with_patience(self.patience.unwrap_or(PATIENCE));
        let mut cpus = u32::MAX;
        for variant in request.variants() {
            cpus = cpus.min(cpus_of(variant)?);
        }
        let is_plain = match request.variants() {
            [only] => only.labels().is_empty() && is_cpus_alone(only.wants()),
            _ => false,
        };
        let request_bytes = if is_plain { Vec::new() } else { request.encode() };
        Ok(Requested { cpus, memory_bytes: memory_bytes(&request), request: request_bytes })
    }
}

impl Requested {
    /// The number of variants.
    pub(crate) fn variants(&self) -> usize {
        Request::decode(&self.request).map_or(1, |request| request.variants().len())
    }

    /// The variants of a spec's request, as texts.
    #[doc(hidden)]
    #[must_use]
    pub fn variants_of(spec: &wire::Spec) -> Vec<String> {
        let request = Request::decode(&spec.request).ok().filter(|_| !spec.request.is_empty());
        let variants = request.as_ref().map_or(&[][..], |request| request.variants());
        variants.iter().map(ToString::to_string).collect()
    }

    /// The patience of a spec's request; `None` with one variant.
    #[doc(hidden)]
    #[must_use]
    pub fn patience_of(spec: &wire::Spec) -> Option<Duration> {
        let request = Request::decode(&spec.request).ok()?;
        (request.variants().len() > 1).then(|| request.patience())
    }
}

fn is_cpus_alone(wants: &[Want]) -> bool {
    match wants {
        [cpus] => {
            let is_amount = matches!(cpus.quantity, Quantity::Amount(_));
            cpus.pool == Name::cpus() && is_amount && cpus.policy == Policy::default()
        }
        _ => false,
    }
}

/// A slot runs one task, so that cpus are whole numbers.
fn cpus_of(variant: &Variant) -> Result<u32, String> {
    let cpus = variant.wants().iter().find(|want| want.pool == Name::cpus());
    match cpus.map(|want| want.quantity) {
        Some(Quantity::Amount(amount)) if amount.fraction() > 0 => {
            Err(format!("cpus={amount}: cpus are whole numbers"))
        }
        Some(Quantity::Amount(amount)) => {
            let most = u64::from(proto::limits::SLOTS_MAX);
            let cpus =
                u32::try_from(amount.whole_part()).ok().filter(|_| amount.whole_part() <= most);
            cpus.ok_or_else(|| format!("cpus={amount}: a node has at most {most} cpus"))
        }
        Some(Quantity::All) | None => Ok(1),
    }
}

fn memory_bytes(request: &Request) -> u64 {
    let first = request.variants().first();
    let wants = first.map_or(&[][..], Variant::wants);
    let memory = wants.iter().find(|want| want.pool == Name::memory());
    match memory.map(|want| want.quantity) {
        Some(Quantity::Amount(amount)) => amount.max(Amount::ONE).whole_part(),
        Some(Quantity::All) | None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_amount_of_memory_has_a_unit() {
        let memory = |text: &str| Needs { memory: text.to_owned(), ..Needs::default() }.request();
        let error = "memory=100: that is 100 bytes; write 100MiB or so";
        assert_eq!(memory("100").unwrap_err(), error);
        assert_eq!(memory("1").unwrap_err(), "memory=1: that is 1 byte; write 1MiB or so");
        for none in ["0", "0MiB"] {
            let error = "memory=0 asks for nothing; the smallest amount is 1MiB or so";
            assert_eq!(memory(none).unwrap_err(), error);
        }
        assert!(memory("100MiB").is_ok() && memory("2000000").is_ok() && memory("all").is_ok());
        assert!(memory("100B").is_ok(), "it has a unit");
        let variant = Needs { variants: vec!["cpus=1, memory=100".into()], ..Needs::default() };
        assert_eq!(variant.request().unwrap_err(), error);
        let named = Needs { resources: vec!["memory=100".into()], ..Needs::default() };
        assert_eq!(named.request().unwrap_err(), error);
    }

    fn texts(needs: &Needs) -> Result<(u32, Vec<String>), String> {
        let Requested { cpus, request, .. } = needs.request()?;
        let spec = wire::Spec { request, ..wire::Spec::default() };
        Ok((cpus, Requested::variants_of(&spec)))
    }

    #[test]
    fn cpus_alone_are_no_request() {
        let needs = |cpus: &str| Needs { cpus: cpus.into(), ..Needs::default() };
        assert_eq!(texts(&needs("")), Ok((1, Vec::new())));
        assert_eq!(texts(&needs("4")), Ok((4, Vec::new())));
        assert_eq!(texts(&needs("4 tight!")), Ok((4, vec!["cpus=4 tight!".into()])));
        assert_eq!(texts(&needs("all")), Ok((1, vec!["cpus=all".into()])));
        assert!(texts(&needs("0.5")).unwrap_err().contains("whole"));
        assert!(texts(&needs("x")).is_err());
    }

    #[test]
    fn a_gang_holds_whole_nodes_and_has_no_patience() {
        let needs = Needs { variants: vec!["cpus=1".into(), "cpus=2".into()], ..Needs::default() };
        let patient = |ms| Needs { patience: Some(Duration::from_millis(ms)), ..needs.clone() };
        assert_eq!(patient(5).of_gang(1, false), Ok(patient(5)));
        assert_eq!(patient(0).of_gang(2, false), Ok(patient(0)));
        assert!(patient(5).of_gang(2, false).unwrap_err().contains("no patience"));
        let cpus = |has_cpus| Needs::default().of_gang(2, has_cpus).map(|needs| needs.cpus);
        assert_eq!((cpus(false), cpus(true)), (Ok("all".into()), Ok(String::new())));
    }

    #[test]
    fn flags_are_the_first_variant() {
        let needs = Needs {
            gpus: "0.5".into(),
            memory: "2GiB".into(),
            labels: vec!["fast".into()],
            variants: vec!["cpus=8".into()],
            ..Needs::default()
        };
        let first = "cpus=1, gpus=0.5, memory=2GiB, label=fast";
        assert_eq!(texts(&needs), Ok((1, vec![first.into(), "cpus=8".into()])));
        assert_eq!(needs.request().map(|it| it.memory_bytes), Ok(2 << 30));
        let only = Needs { variants: needs.variants, ..Needs::default() };
        assert_eq!(texts(&only), Ok((8, Vec::new())), "one variant of cpus alone");
    }
}
