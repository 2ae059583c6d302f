//! The search for values that JSON does not hold: it writes `null` for infinity and NaN, and for
//! `Some(None)` as for `None`.

use std::fmt;

use serde::Serialize;
use serde::ser::{self, Serializer};

/// Serialises into nothing, and fails at the first float that is not finite, and at a `Some` that
/// reads back as `None`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Exact {
    /// The value is that of a `Some`.
    in_some: bool,
}

#[derive(Debug)]
pub(crate) struct Inexact(String);

impl fmt::Display for Inexact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Inexact {}

impl ser::Error for Inexact {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

type Checked = Result<(), Inexact>;

macro_rules! ignored {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(fn $name(self, _: $type) -> Checked { Ok(()) })*
    };
}

macro_rules! compound {
    ($($name:ident($($left:ty),*) -> $kind:ident),* $(,)?) => {
        $(fn $name(self, $(_: $left),*) -> Result<Self, Inexact> { Ok(Self::default()) })*
        $(type $kind = Self;)*
    };
}

impl Serializer for Exact {
    type Ok = ();
    type Error = Inexact;

    ignored! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32,
        serialize_i64: i64, serialize_i128: i128, serialize_u8: u8, serialize_u16: u16,
        serialize_u32: u32, serialize_u64: u64, serialize_u128: u128, serialize_char: char,
        serialize_str: &str, serialize_bytes: &[u8],
    }

    compound! {
        serialize_seq(Option<usize>) -> SerializeSeq,
        serialize_tuple(usize) -> SerializeTuple,
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct,
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant,
        serialize_map(Option<usize>) -> SerializeMap,
        serialize_struct(&'static str, usize) -> SerializeStruct,
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant,
    }

    fn serialize_f32(self, value: f32) -> Checked {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Checked {
        match value.is_finite() {
            true => Ok(()),
            false => Err(Inexact(format!("JSON has no number {value}"))),
        }
    }

    fn serialize_none(self) -> Checked {
        match self.in_some {
            true => Err(Inexact("JSON does not tell Some(None) or Some(()) from None".to_owned())),
            false => Ok(()),
        }
    }

    fn serialize_unit(self) -> Checked {
        self.serialize_none()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Checked {
        self.serialize_none()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Checked {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Checked {
        value.serialize(Self { in_some: true })
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, v: &T) -> Checked {
        v.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Checked {
        value.serialize(Self::default())
    }
}

macro_rules! parts {
    ($($kind:ident::$name:ident($($key:ty)?)),* $(,)?) => {
        $(impl ser::$kind for Exact {
            type Ok = ();
            type Error = Inexact;
            fn $name<T: Serialize + ?Sized>(&mut self, $(_: $key,)? value: &T) -> Checked {
                value.serialize(Self::default())
            }
            fn end(self) -> Checked { Ok(()) }
        })*
    };
}

parts! {
    SerializeSeq::serialize_element(),
    SerializeTuple::serialize_element(),
    SerializeTupleStruct::serialize_field(),
    SerializeTupleVariant::serialize_field(),
    SerializeStruct::serialize_field(&'static str),
    SerializeStructVariant::serialize_field(&'static str),
}

impl ser::SerializeMap for Exact {
    type Ok = ();
    type Error = Inexact;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Checked {
        key.serialize(Self::default())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Checked {
        value.serialize(Self::default())
    }

    fn end(self) -> Checked {
        Ok(())
    }
}
