//! Variables of jobs: their rules, the order of their values, and their texts.
//!
//! The values of a variable are ordered, and a value only ever gives way to a better one. So it
//! does not matter how often and in which order values arrive.

use crate::limits::{
    VARIABLE_NAME_BYTES_MAX, VARIABLE_TEXT_BYTES_MAX, VARIABLES_MAX, WITNESS_BYTES_MAX,
};
use crate::wire::{VarDeclared, VarRule, VarSum, VarValue};

/// Whether the value is better than the known one. Of two equal numbers, the known one stays.
#[must_use]
pub fn improves(rule: VarRule, known: Option<&VarValue>, value: &VarValue) -> bool {
    let Some(known) = known else { return true };
    match rule {
        VarRule::VarMin => value.number < known.number,
        VarRule::VarMax => value.number > known.number,
        VarRule::VarLast => (value.seq, value.writer) > (known.seq, known.writer),
        VarRule::VarSum => false,
    }
}

/// Refuses declarations that are malformed.
pub fn check_all(declared: &[VarDeclared]) -> Result<(), String> {
    if declared.len() > VARIABLES_MAX {
        return Err(format!("a job has at most {VARIABLES_MAX} variables"));
    }
    for (at, one) in declared.iter().enumerate() {
        check(one)?;
        if declared[..at].iter().any(|other| other.name == one.name) {
            return Err(format!("the variable '{}' is declared twice", one.name));
        }
    }
    Ok(())
}

fn check(declared: &VarDeclared) -> Result<(), String> {
    let name = &declared.name;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if !begins || name.len() > VARIABLE_NAME_BYTES_MAX || !name.chars().all(is_plain) {
        return Err(format!(
            "'{}' is no name of a variable: it has 1 to {VARIABLE_NAME_BYTES_MAX} letters, digits \
             and any of _ - . and begins with none of - .",
            name.escape_debug()
        ));
    }
    let Ok(rule) = VarRule::try_from(declared.rule) else {
        return Err(format!("the variable '{name}' has an unknown rule"));
    };
    if declared.real && matches!(rule, VarRule::VarLast | VarRule::VarSum) {
        return Err(format!(
            "the rule {} of the variable '{name}' does not fit reals; hint: min and max do",
            rule_name(rule)
        ));
    }
    match &declared.initial {
        Some(_) if rule == VarRule::VarSum => {
            Err(format!("the variable '{name}' is a sum: it begins with 0"))
        }
        Some(initial) => check_initial(declared, initial),
        None => Ok(()),
    }
}

/// Refuses an initial value that no text of a declaration gives.
fn check_initial(declared: &VarDeclared, initial: &VarValue) -> Result<(), String> {
    let name = &declared.name;
    if initial.seq != 0 || initial.writer != 0 {
        return Err(format!("the initial value of the variable '{name}' has a writer"));
    }
    if declared.real && !real_of_number(initial.number).is_finite() {
        return Err(format!("the initial value of the variable '{name}' is no finite number"));
    }
    check_value(initial)
}

/// Refuses a value that is too large.
pub fn check_value(value: &VarValue) -> Result<(), String> {
    if value.text.len() > VARIABLE_TEXT_BYTES_MAX {
        return Err(format!("the text of a variable has at most {VARIABLE_TEXT_BYTES_MAX} bytes"));
    }
    if value.witness.len() > WITNESS_BYTES_MAX {
        return Err(format!(
            "a witness has at most {WITNESS_BYTES_MAX} bytes; hint: a file's name"
        ));
    }
    Ok(())
}

/// The name of a rule in texts.
#[must_use]
pub fn rule_name(rule: VarRule) -> &'static str {
    match rule {
        VarRule::VarMin => "min",
        VarRule::VarMax => "max",
        VarRule::VarLast => "last",
        VarRule::VarSum => "sum",
    }
}

/// The rule of a declaration as [`parse_declared`] reads it: `RULE[,real][:INITIAL]`.
#[must_use]
pub fn text_of_rule(declared: &VarDeclared) -> String {
    let real = if declared.real { ",real" } else { "" };
    let initial = declared.initial.as_ref().map(|initial| text_of(declared, initial));
    let initial = initial.map_or_else(String::new, |initial| format!(":{initial}"));
    format!("{}{real}{initial}", rule_name(declared.rule()))
}

/// Reads a declaration: `NAME=RULE`, where the rule is `min`, `max`, `last` or `sum`, then perhaps
/// `,real` or `,int`, and perhaps `:INITIAL`.
pub fn parse_declared(text: &str) -> Result<VarDeclared, String> {
    let malformed = || format!("'{text}' is not NAME=RULE[,real][:INITIAL]");
    let (name, rest) = text.split_once('=').ok_or_else(malformed)?;
    let (rule, initial) = match rest.split_once(':') {
        Some((rule, initial)) => (rule, Some(initial)),
        None => (rest, None),
    };
    let (rule, kind) = match rule.split_once(',') {
        Some((rule, kind)) => (rule, Some(kind)),
        None => (rule, None),
    };
    declared(name, rule, kind, initial)
}

/// A declaration by its parts.
pub fn declared(
    name: &str,
    rule: &str,
    kind: Option<&str>,
    initial: Option<&str>,
) -> Result<VarDeclared, String> {
    let rule = match rule {
        "min" => VarRule::VarMin,
        "max" => VarRule::VarMax,
        "last" => VarRule::VarLast,
        "sum" => VarRule::VarSum,
        other => {
            return Err(format!(
                "the variable '{name}' has the rule '{other}'; rules are min, max, last and sum"
            ));
        }
    };
    let real = match kind {
        None | Some("int") => false,
        Some("real") => true,
        Some(other) => {
            return Err(format!("the variable '{name}' has the type '{other}', not int or real"));
        }
    };
    if kind.is_some() && rule == VarRule::VarLast {
        return Err(format!(
            "the rule last of the variable '{name}' does not fit numbers: its values are texts"
        ));
    }
    let mut all = VarDeclared { name: name.to_owned(), rule: rule as i32, real, initial: None };
    check(&all)?;
    if let Some(initial) = initial {
        if rule == VarRule::VarSum {
            return Err(format!("the variable '{name}' is a sum: it begins with 0"));
        }
        all.initial = Some(parse_value(&all, initial)?);
    }
    check(&all)?;
    Ok(all)
}

/// Reads a value of a variable that is not a sum.
pub fn parse_value(declared: &VarDeclared, text: &str) -> Result<VarValue, String> {
    let name = &declared.name;
    match declared.rule() {
        VarRule::VarMin | VarRule::VarMax if declared.real => match text.trim().parse::<f64>() {
            Ok(real) if real.is_finite() => {
                Ok(VarValue { number: number_of_real(real), ..VarValue::default() })
            }
            _ => Err(format!("'{text}' is no finite number for the variable '{name}'")),
        },
        VarRule::VarMin | VarRule::VarMax => match text.trim().parse() {
            Ok(number) => Ok(VarValue { number, ..VarValue::default() }),
            Err(_) => Err(format!(
                "'{text}' is no integer of 64 bits for the variable '{name}'; hint: declare it as \
                 {name}={},real",
                rule_name(declared.rule())
            )),
        },
        VarRule::VarLast => {
            let value = VarValue { text: text.as_bytes().to_vec(), ..VarValue::default() };
            check_value(&value).map(|()| value)
        }
        VarRule::VarSum => {
            Err(format!("the variable '{name}' is a sum: it is not set; hint: starling var add"))
        }
    }
}

/// Reads a number that is added to a sum.
pub fn parse_sum(declared: &VarDeclared, text: &str) -> Result<i64, String> {
    let name = &declared.name;
    if declared.rule() != VarRule::VarSum {
        let rule = rule_name(declared.rule());
        return Err(format!(
            "the variable '{name}' has the rule {rule}, so nothing is added to it"
        ));
    }
    let number = text.trim().parse();
    number.map_err(|_| format!("'{text}' is no integer of 64 bits for the sum '{name}'"))
}

/// The text of a value.
#[must_use]
pub fn text_of(declared: &VarDeclared, value: &VarValue) -> String {
    match declared.rule() {
        VarRule::VarLast => String::from_utf8_lossy(&value.text).into_owned(),
        _ if declared.real => real_of_number(value.number).to_string(),
        _ => value.number.to_string(),
    }
}

/// Maps reals to integers in the same order. Both zeros are one.
#[must_use]
pub fn number_of_real(real: f64) -> i64 {
    let bits = if real == 0.0 { 0 } else { real.to_bits().cast_signed() };
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

/// The inverse of [`number_of_real`].
#[must_use]
pub fn real_of_number(number: i64) -> f64 {
    let bits = if number < 0 { number ^ i64::MAX } else { number };
    f64::from_bits(bits.cast_unsigned())
}

impl VarSum {
    /// A sum of 128 bits never overflows: it has at most 2^63 summands of 64 bits.
    #[must_use]
    pub fn new(variable: u32, sum: i128) -> Self {
        Self { variable, high: (sum >> 64) as i64, low: sum as u64 }
    }
    #[must_use]
    pub fn sum(&self) -> i128 {
        i128::from(self.high) << 64 | i128::from(self.low)
    }
}

/// Adds `added` times `sign` to the sums, which are ordered by variable.
pub fn add_sums(sums: &mut Vec<VarSum>, added: &[VarSum], sign: i128) {
    for one in added {
        let delta = one.sum().wrapping_mul(sign);
        match sums.binary_search_by_key(&one.variable, |it| it.variable) {
            Ok(at) => {
                sums[at] = VarSum::new(one.variable, sums[at].sum().wrapping_add(delta));
            }
            Err(at) => sums.insert(at, VarSum::new(one.variable, delta)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: i64) -> VarValue {
        VarValue { number, ..VarValue::default() }
    }

    #[test]
    fn reals_keep_their_order_as_integers() {
        let reals = [f64::MIN, -1e9, -1.5, -1e-300, 0.0, 1e-300, 0.1, 1.5, 1e9, f64::MAX];
        for pair in reals.windows(2) {
            assert!(number_of_real(pair[0]) < number_of_real(pair[1]), "{pair:?}");
        }
        for real in reals {
            assert_eq!(real_of_number(number_of_real(real)), real);
        }
        assert_eq!(number_of_real(-0.0), number_of_real(0.0));
    }

    #[test]
    fn values_only_improve_in_any_order() {
        for (rule, best) in [(VarRule::VarMin, 1), (VarRule::VarMax, 9)] {
            for order in [[5, 1, 9], [9, 5, 1], [1, 9, 5], [1, 1, 9]] {
                let mut known = None;
                for value in order.map(number).iter().chain(&[number(5)]) {
                    if improves(rule, known.as_ref(), value) {
                        known = Some(value.clone());
                    }
                }
                assert_eq!(known.map(|it| it.number), Some(best));
            }
        }
        let last = |seq, writer| VarValue { seq, writer, ..VarValue::default() };
        assert!(improves(VarRule::VarLast, Some(&last(1, 9)), &last(2, 1)));
        assert!(improves(VarRule::VarLast, Some(&last(2, 1)), &last(2, 2)));
        assert!(!improves(VarRule::VarLast, Some(&last(2, 2)), &last(2, 2)), "a repetition");
    }

    #[test]
    fn declarations_are_read_and_bad_ones_are_refused() {
        let best = parse_declared("best=min:120").unwrap();
        assert_eq!((best.rule(), best.initial), (VarRule::VarMin, Some(number(120))));
        let gap = parse_declared("gap=max,real:-0.5").unwrap();
        assert_eq!(text_of(&gap, gap.initial.as_ref().unwrap()), "-0.5");
        let note = parse_declared("note=last:a:b=c").unwrap();
        assert_eq!(text_of(&note, note.initial.as_ref().unwrap()), "a:b=c");
        assert!(parse_declared("nodes=sum").is_ok());
        let bad = [
            "best",
            "best=least",
            "best=min,text",
            "note=last,int",
            "nodes=sum,real",
            "nodes=sum:3",
            "best=min:1.5",
            "best=min:",
            "a b=min",
            "=min",
            "-a=min",
            ".a=min",
            "x=max,real:inf",
            "x=min,int,int",
        ];
        for text in bad {
            assert!(parse_declared(text).is_err(), "{text}");
        }
        let with = |initial| VarDeclared { initial: Some(initial), ..gap.clone() };
        for initial in [
            VarValue { seq: u64::MAX, ..VarValue::default() },
            VarValue { writer: 1, ..VarValue::default() },
            number(f64::INFINITY.to_bits().cast_signed()),
        ] {
            assert!(check_all(&[with(initial.clone())]).is_err(), "{initial:?}");
        }
        let twice = [parse_declared("a=min").unwrap(), parse_declared("a=max").unwrap()];
        assert!(check_all(&twice).is_err());
    }

    #[test]
    fn sums_are_exact_beyond_64_bits() {
        let mut sums = Vec::new();
        let one = |variable, sum: i64| VarSum::new(variable, sum.into());
        for _ in 0..3 {
            add_sums(&mut sums, &[one(2, i64::MAX), one(0, -7)], 1);
        }
        add_sums(&mut sums, &[one(0, -7)], -1);
        let sums: Vec<_> = sums.iter().map(|it| (it.variable, it.sum())).collect();
        assert_eq!(sums, [(0, -14), (2, 3 * i128::from(i64::MAX))]);
    }
}
