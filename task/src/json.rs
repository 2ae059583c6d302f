//! Values as JSON, exactly: what JSON does not hold is an error.

use std::cell::Cell;
use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::ser::Formatter;

use crate::exact::Exact;

/// JSON without spaces. It notes whether a `null` was written.
struct Compact<'a> {
    has_null: &'a Cell<bool>,
}

impl Formatter for Compact<'_> {
    fn write_null<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.has_null.set(true);
        writer.write_all(b"null")
    }
}

/// Appends the JSON of a value. A `null` may stand for a float or for a `Some` that JSON lacks:
/// then the value is looked through once more.
pub(crate) fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<(), String> {
    let has_null = Cell::new(false);
    let format = Compact { has_null: &has_null };
    let mut serializer = serde_json::Serializer::with_formatter(out, format);
    value.serialize(&mut serializer).map_err(|error| error.to_string())?;
    match has_null.get() {
        true => value.serialize(Exact::default()).map_err(|error| error.to_string()),
        false => Ok(()),
    }
}

pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    write(&mut out, value)?;
    Ok(out)
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn again<T: Serialize + DeserializeOwned>(value: &T) -> T {
        decode(&encode(value).unwrap()).unwrap()
    }

    #[test]
    fn values_come_back_as_they_were() {
        let text = "ä\n".to_owned();
        assert_eq!(again(&(1_u64 << 63, -1_i8, text.clone())), (1 << 63, -1, text));
        assert_eq!(again(&Some(Some(3))), Some(Some(3)));
        again(&());
        // Each of these was off by one bit without exact reading.
        for value in [51.248_178_377_855_4_f64, 8.98e-308, f64::MAX, 0.1 + 0.2, -0.0] {
            assert_eq!(again(&value).to_bits(), value.to_bits());
        }
    }

    #[test]
    fn what_json_lacks_is_refused() {
        let reason = |error: Result<Vec<u8>, String>| error.unwrap_err();
        assert_eq!(reason(encode(&f64::NAN)), "JSON has no number NaN");
        assert_eq!(reason(encode(&vec![Some(1.0), Some(f64::INFINITY)])), "JSON has no number inf");
        let maps = BTreeMap::from([(1, BTreeMap::from([("a", f32::NEG_INFINITY)]))]);
        assert_eq!(reason(encode(&maps)), "JSON has no number -inf");
        assert!(reason(encode(&BTreeMap::from([((1, 2), 3)]))).contains("key must be a string"));
        assert!(encode(&vec![Some(1.0), None]).is_ok());
    }

    #[test]
    fn a_some_that_reads_as_none_is_refused() {
        #[derive(Serialize)]
        struct Unit;
        #[derive(Serialize)]
        struct Wrapped<T>(T);
        let is_lost =
            |text: Result<Vec<u8>, String>| text.is_err_and(|text| text.contains("from None"));
        assert!(is_lost(encode(&Some(None::<u64>))));
        assert!(is_lost(encode(&Some(Some(None::<u64>)))));
        assert!(is_lost(encode(&Some(()))));
        assert!(is_lost(encode(&vec![(1, Some(Wrapped(Unit)))])));
        assert!(is_lost(encode(&Some(serde_json::Value::Null))));
        // The place of the `null` is inside of the value.
        assert_eq!(again(&Some(vec![None, Some(1)])), Some(vec![None, Some(1)]));
        assert_eq!(again(&Some((Some(1), ()))), Some((Some(1), ())));
        assert!(encode(&Some(BTreeMap::from([("a", None::<u64>)]))).is_ok());
        assert_eq!(again(&None::<Option<u64>>), None);
    }

    #[test]
    fn another_type_is_an_error_with_its_place() {
        let error = decode::<Vec<u64>>(b"[1,\"two\"]").unwrap_err();
        assert!(error.contains("invalid type: string \"two\", expected u64 at line 1"), "{error}");
    }
}
