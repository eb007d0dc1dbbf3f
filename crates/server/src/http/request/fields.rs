//! What bodies are made of: objects whose fields are known, lists with a bound, texts and numbers.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use sluicegate::config::suggest::nearest;
use sluicegate_core::arithmetic::EXACT_MAX;

use super::place::{Reading, Step};

/// The fields of an object, taken as they come.
pub(super) trait Fields<'de> {
    /// What it looks like.
    const SHAPE: &'static str;

    /// Takes the value of a field.
    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
        reading: &mut Reading<'_>,
    ) -> Result<(), A::Error>;

    /// There are no more.
    fn end<E: Error>(&mut self) -> Result<(), E>;
}

/// An object.
pub(super) struct Object<'r, 'm, F> {
    pub(super) fields: &'r mut F,
    pub(super) reading: &'r mut Reading<'m>,
}

/// The items of a list, taken as they come.
pub(super) trait Items<'de> {
    /// What they are, in the plural.
    const WHAT: &'static str;

    /// Takes an item.
    fn item<D: Deserializer<'de>>(
        &mut self,
        json: D,
        reading: &mut Reading<'_>,
    ) -> Result<(), D::Error>;
}

/// A list of no more than so many.
pub(super) struct Each<'r, 'm, I> {
    pub(super) most: usize,
    pub(super) items: I,
    pub(super) reading: &'r mut Reading<'m>,
}

/// A text of so many bytes at most.
#[derive(Clone, Copy)]
pub(super) struct Text(pub(super) usize);

/// The name of a field.
pub(super) struct Name;

/// A whole number; one that is too large to be held exactly is the largest that is.
pub(super) struct Hits;

/// That a field comes no second time.
pub(super) fn once<E: Error>(again: bool) -> Result<(), E> {
    if again { Err(E::custom("comes twice; leave one of them out")) } else { Ok(()) }
}

/// That nobody knows a field.
pub(super) fn unknown<E: Error>(name: &str, known: &[&str]) -> E {
    let short: String = name.chars().take(40).collect();
    let meant = nearest(&short, known.iter().copied());
    let meant = meant.map_or_else(String::new, |meant| format!("did you mean `{meant}`? "));
    E::custom(format_args!("unknown field `{short}`; {meant}known are {}", known.join(", ")))
}

// === impl Object ===

impl<'de, F: Fields<'de>> Object<'_, '_, F> {
    pub(super) fn read<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, F: Fields<'de>> DeserializeSeed<'de> for Object<'_, '_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        self.read(json)
    }
}

impl<'de, F: Fields<'de>> Visitor<'de> for Object<'_, '_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(F::SHAPE)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key_seed(Name)? {
            let taken = self.fields.field(name.clone(), &mut map, self.reading);
            if let Err(error) = taken {
                self.reading.failed_at(Step::field(&name));
                return Err(error);
            }
        }
        self.fields.end()
    }
}

// === impl Each ===

/// One of a list.
struct One<'r, 'm, I> {
    items: &'r mut I,
    reading: &'r mut Reading<'m>,
    /// How many there may be, if there are as many.
    full: Option<usize>,
}

impl<'de, I: Items<'de>> DeserializeSeed<'de> for One<'_, '_, I> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        match self.full {
            Some(most) => Err(self.reading.too_many(I::WHAT, most)),
            None => self.items.item(json, self.reading),
        }
    }
}

impl<'de, I: Items<'de>> DeserializeSeed<'de> for Each<'_, '_, I> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, I: Items<'de>> Visitor<'de> for Each<'_, '_, I> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {}", I::WHAT)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        for place in 0usize.. {
            let full = (place == self.most).then_some(self.most);
            let one = One { items: &mut self.items, reading: &mut *self.reading, full };
            match list.next_element_seed(one) {
                Ok(Some(())) => {}
                Ok(None) => break,
                Err(error) => {
                    self.reading.failed_at(Step::At(place));
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

// === impl Text ===

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl Text {
    fn bound<E: Error>(self, text: &str) -> Result<(), E> {
        match text.len() <= self.0 {
            true => Ok(()),
            false => Err(E::custom(format_args!(
                "has {} bytes, and a text may have {}; use something shorter, such as a hash of it",
                text.len(),
                self.0
            ))),
        }
    }

    fn not_quoted<E: Error>(value: impl fmt::Display) -> E {
        E::custom(format_args!("must be a text, got `{value}`; write it in quotes: \"{value}\""))
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        self.bound(text)?;
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        self.bound(text)?;
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Err(Self::not_quoted(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Err(Self::not_quoted(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Err(Self::not_quoted(number))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Err(Self::not_quoted(value))
    }
}

// === impl Name ===

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(Text(usize::MAX))
    }
}

// === impl Hits ===

impl<'de> DeserializeSeed<'de> for Hits {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<u64, D::Error> {
        json.deserialize_any(self)
    }
}

impl Visitor<'_> for Hits {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 on")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number.min(EXACT_MAX))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        // What is beyond 64 bits comes as such, and so does `1e3`.
        if number >= 0.0 && number.trunc() == number {
            return Ok((number as u64).min(EXACT_MAX));
        }
        Err(E::custom(format_args!("must be a whole number from 0 on, got `{number}`")))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        Err(E::custom(format_args!(
            "must be a whole number from 0 on, got `{number}`; to give hits back use /v1/refund"
        )))
    }
}
