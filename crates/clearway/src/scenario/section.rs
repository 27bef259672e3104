//! The table of a scenario that belongs to a mechanism: the scenario holds it, the mechanism gives
//! it keys and rules.
//!
//! # Model
//! A mechanism has a type with its parameters, reads it with serde, and implements [`Section`] for
//! it. [`SectionKind`] is what a list of mechanisms holds of that type. Once read it is an
//! [`AnySection`]; who knows the type gets it back from
//! [`Scenario::section`](super::Scenario::section).

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::Error as Refusal;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::{Serialize, forward_to_deserialize_any};
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error, ValueDeserializer};

use super::fabric::Fabric;

/// The parameters of a mechanism, which are one table of a scenario.
pub(crate) trait Section: Any + Clone + fmt::Debug + Serialize + DeserializeOwned {
    /// The name of the table: `timeslice` for `[timeslice]`.
    const NAME: &'static str;

    /// Takes what is usual on `fabric` for the keys that the scenario, as `given`, leaves out
    /// ([`is_given`]). The fabric may be changed where it leaves a choice.
    ///
    /// # Errors
    /// One sentence about the fabric.
    fn apply_defaults(&mut self, fabric: &mut Fabric, given: &DeTable<'_>) -> Result<(), String>;

    /// Says in one sentence why this cannot run on `fabric`, if it cannot.
    fn check(&self, fabric: &Fabric) -> Result<(), String>;

    /// Takes what is fixed on `fabric`, the network of a job.
    ///
    /// # Errors
    /// One sentence, where the mechanism has no scenario that runs across a job.
    fn on_job(&mut self, _fabric: &Fabric) -> Result<(), String> {
        Err(format!("[{}] does not run across a job", Self::NAME))
    }
}

/// A [`Section`] of any type.
pub(crate) trait AnySection: Any + fmt::Debug {
    fn name(&self) -> &'static str;
    fn apply_defaults(&mut self, fabric: &mut Fabric, given: &DeTable<'_>) -> Result<(), String>;
    fn check(&self, fabric: &Fabric) -> Result<(), String>;
    fn on_job(&mut self, fabric: &Fabric) -> Result<(), String>;
    /// Returns the table as a scenario has it, heading included.
    fn text(&self) -> Result<String, toml::ser::Error>;
    fn copy(&self) -> Box<dyn AnySection>;
}

impl<T: Section> AnySection for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn apply_defaults(&mut self, fabric: &mut Fabric, given: &DeTable<'_>) -> Result<(), String> {
        Section::apply_defaults(self, fabric, given)
    }

    fn check(&self, fabric: &Fabric) -> Result<(), String> {
        Section::check(self, fabric)
    }

    fn on_job(&mut self, fabric: &Fabric) -> Result<(), String> {
        Section::on_job(self, fabric)
    }

    fn text(&self) -> Result<String, toml::ser::Error> {
        table(T::NAME, self)
    }

    fn copy(&self) -> Box<dyn AnySection> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn AnySection> {
    fn clone(&self) -> Self {
        (**self).copy()
    }
}

type Parse = fn(Spanned<DeValue<'_>>) -> Result<Box<dyn AnySection>, Error>;

/// How a table is read: the entry of a mechanism in the list of all.
#[derive(Clone, Copy)]
pub(crate) struct SectionKind {
    /// The name of the table.
    pub(super) name: &'static str,
    /// Its keys.
    pub(super) keys: fn() -> &'static [&'static str],
    /// Reads it; errors point into the text of the whole scenario.
    pub(super) parse: Parse,
}

impl SectionKind {
    /// Creates the table that is read as `T`.
    pub(crate) const fn new<T: Section>() -> Self {
        Self {
            name: T::NAME,
            keys: keys_of::<T>,
            parse: |value| Ok(Box::new(T::deserialize(ValueDeserializer::from(value))?)),
        }
    }

    /// Returns its name and its keys.
    #[cfg(test)]
    pub(crate) fn table(&self) -> (&'static str, &'static [&'static str]) {
        (self.name, (self.keys)())
    }
}

/// Returns whether a scenario, as `given`, has `key` in `[table]`.
pub(crate) fn is_given(given: &DeTable<'_>, table: &str, key: &str) -> bool {
    given
        .get(table)
        .and_then(|value| value.get_ref().as_table())
        .is_some_and(|table| table.contains_key(key))
}

/// Returns `value` as the text of `[name]`.
pub(super) fn table<T: Serialize>(name: &str, value: &T) -> Result<String, toml::ser::Error> {
    toml::to_string(&BTreeMap::from([(name, value)]))
}

/// Returns the keys that `T` reads, in their order; none where it is no struct.
pub(super) fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut keys: &[&str] = &[];
    // It ends with a refusal, after the type has said which fields it wants.
    let _ = T::deserialize(KeyCollector(&mut keys));
    keys
}

/// A source of nothing, which notes the fields that a type asks for.
struct KeyCollector<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for KeyCollector<'_> {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refusal> {
        Err(Refusal::custom("there is no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::sample::SampleSection;

    #[test]
    fn keys_of__are_those_that_the_type_reads_and_writes() {
        assert_eq!(keys_of::<SampleSection>(), ["queue", "times", "each-takes"]);
        assert_eq!(
            keys_of::<Fabric>().first(),
            Some(&"topology"),
            "through the type that it is read from"
        );
        assert_eq!(keys_of::<u32>(), [""; 0]);
    }

    #[test]
    fn is_given__asks_for_a_key_of_one_table() {
        let text = "name = \"x\"\n[knock]\ntimes = 18446744073709551615\n";
        let given = DeTable::parse(text).expect("it is TOML").into_inner();
        assert!(is_given(&given, "knock", "times"));
        assert!(
            !is_given(&given, "knock", "queue")
                && !is_given(&given, "name", "x")
                && !is_given(&given, "", "name")
        );
    }
}
