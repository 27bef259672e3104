//! Reads one table of a fabric file key by key: right types, right units, right bounds, and no key
//! that nobody asked for.
//!
//! # Invariants
//! I1. A key that nothing reads is refused by [`Section::close`], so nothing in a file is silently
//!     without effect.
//! I2. Every number that is read becomes a [`Figure`].

use core::ops::RangeInclusive;
use core::str::FromStr;

use clearway_proto::base::{BitsPerSec, Bytes};

use super::figure::{self, Figure};
use super::file::FileError;
use super::tree::{FilePosition, SpecNode, Value};
use crate::time::Picos;

/// A table that is being read.
pub(super) struct Section<'a> {
    node: &'a SpecNode,
    path: String,
    asked: Vec<&'static str>,
    figures: Vec<Figure>,
}

impl<'a> Section<'a> {
    /// Creates the table `node`, which stands at `path`.
    ///
    /// # Errors
    /// It is no table.
    pub(super) fn new(node: &'a SpecNode, path: String) -> Result<Self, FileError> {
        if !matches!(node.value, Value::Table(_)) {
            return Err(node
                .place
                .wrong(format!("`{path}` is {}; it must be a table", node.value.kind())));
        }
        Ok(Self { node, path, asked: Vec::new(), figures: Vec::new() })
    }

    /// Returns the table `key` in this one, if it is there.
    pub(super) fn inner(&mut self, key: &'static str) -> Result<Option<Section<'a>>, FileError> {
        self.ask(key).map(|node| Section::new(node, self.path_of(key))).transpose()
    }

    /// Returns the table `key` in this one.
    pub(super) fn needed(&mut self, key: &'static str) -> Result<Section<'a>, FileError> {
        match self.inner(key)? {
            Some(section) => Ok(section),
            None => Err(self.missing(key)),
        }
    }

    /// Returns where this table stands.
    pub(super) fn place(&self) -> &FilePosition {
        &self.node.place
    }

    /// Returns all entries, whatever their names; nothing is unknown then.
    pub(super) fn entries(&self) -> &'a [(String, SpecNode)] {
        self.node.entries()
    }

    /// Returns the dotted path of `key`.
    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Returns text.
    pub(super) fn text(&mut self, key: &'static str) -> Result<&'a str, FileError> {
        let node = self.need(key)?;
        match &node.value {
            Value::Text(text) => Ok(text),
            other => Err(self.mistyped(key, node, other, "text")),
        }
    }

    /// Returns one of `choices` by name.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Result<T, FileError> {
        let word = self.text(key)?;
        let found = choices.iter().find(|(name, _)| *name == word).map(|(_, choice)| *choice);
        found.ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            let why =
                format!("{}: `{word}` is not known; {}", self.path_of(key), nearest(word, &names));
            self.node.place_of(key).wrong(why)
        })
    }

    /// Returns a rate with its unit.
    pub(super) fn rate(&mut self, key: &'static str) -> Result<BitsPerSec, FileError> {
        self.quantity(key, figure::rate)
    }

    /// Returns a time with its unit.
    pub(super) fn time(&mut self, key: &'static str) -> Result<Picos, FileError> {
        self.quantity(key, figure::time)
    }

    /// Returns a number of bytes with its unit.
    pub(super) fn bytes(&mut self, key: &'static str) -> Result<Bytes, FileError> {
        self.quantity(key, |text| Bytes::from_str(text).map_err(|error| error.to_string()))
    }

    /// Returns a number of bytes that 32 bits hold.
    pub(super) fn bytes32(&mut self, key: &'static str) -> Result<u32, FileError> {
        let bytes = self.bytes(key)?;
        u32::try_from(bytes.0).map_err(|_| {
            self.node.place_of(key).wrong(format!("{}: {bytes} is too much", self.path_of(key)))
        })
    }

    /// Returns a whole number.
    pub(super) fn count<T: TryFrom<i64> + Into<i64> + Copy>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<T>,
    ) -> Result<T, FileError> {
        let node = self.need(key)?;
        let count = whole(node, &self.path_of(key), range)?;
        self.record(key, node);
        Ok(count)
    }

    /// Returns a list of whole numbers.
    pub(super) fn counts<T: TryFrom<i64> + Into<i64> + Copy>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<T>,
    ) -> Result<Vec<T>, FileError> {
        let path = self.path_of(key);
        let (node, items) = self.list(key)?;
        let counts =
            items.iter().map(|item| whole(item, &path, range.clone())).collect::<Result<_, _>>()?;
        self.record(key, node);
        Ok(counts)
    }

    /// Returns a list of byte counts with their units.
    pub(super) fn bytes_list(&mut self, key: &'static str) -> Result<Vec<Bytes>, FileError> {
        let path = self.path_of(key);
        let (node, items) = self.list(key)?;
        let read = |item: &SpecNode| match &item.value {
            Value::Text(text) => {
                text.parse().map_err(|error| item.place.wrong(format!("{path}: {error}")))
            }
            other => {
                Err(item.place.wrong(format!("{path}: {} needs text with a unit", other.kind())))
            }
        };
        let list = items.iter().map(read).collect::<Result<_, _>>()?;
        self.record(key, node);
        Ok(list)
    }

    /// Returns a list of text.
    pub(super) fn texts(
        &mut self,
        key: &'static str,
    ) -> Result<Vec<(&'a str, &'a FilePosition)>, FileError> {
        let path = self.path_of(key);
        let (_, items) = self.list(key)?;
        let read = |item: &'a SpecNode| match &item.value {
            Value::Text(text) => Ok((text.as_str(), &item.place)),
            other => Err(item.place.wrong(format!("{path}: {} where text belongs", other.kind()))),
        };
        items.iter().map(read).collect()
    }

    /// Returns a list of anything.
    pub(super) fn list(
        &mut self,
        key: &'static str,
    ) -> Result<(&'a SpecNode, &'a [SpecNode]), FileError> {
        let node = self.need(key)?;
        match &node.value {
            Value::List(items) => Ok((node, items)),
            other => Err(self.mistyped(key, node, other, "a list")),
        }
    }

    /// Returns text that is a figure in a notation of its own, read by `read`.
    pub(super) fn quantity<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, FileError> {
        let node = self.need(key)?;
        let text = match &node.value {
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            other => return Err(self.mistyped(key, node, other, "text with a unit")),
        };
        let value =
            read(&text).map_err(|why| node.place.wrong(format!("{}: {why}", self.path_of(key))))?;
        self.record(key, node);
        Ok(value)
    }

    /// Returns whether `key` is there.
    pub(super) fn has(&mut self, key: &'static str) -> bool {
        self.ask(key).is_some()
    }

    /// Returns whether `key` is there and a list.
    pub(super) fn is_list(&mut self, key: &'static str) -> bool {
        self.ask(key).is_some_and(|node| matches!(node.value, Value::List(_)))
    }

    /// Ends the reading: what nobody asked for is refused, the figures go to `figures`.
    ///
    /// # Errors
    /// The first unknown key, with the nearest known one.
    pub(super) fn close(mut self, figures: &mut Vec<Figure>) -> Result<(), FileError> {
        let unknown =
            self.node.entries().iter().find(|(key, _)| !self.asked.contains(&key.as_str()));
        if let Some((key, node)) = unknown {
            return Err(self.unknown(key, node));
        }
        figures.append(&mut self.figures);
        Ok(())
    }

    fn unknown(&self, key: &str, node: &SpecNode) -> FileError {
        node.place.wrong(format!(
            "unknown key `{key}` in {}; {}",
            self.room(),
            nearest(key, &self.asked)
        ))
    }

    fn room(&self) -> String {
        if self.path.is_empty() { "a fabric file".to_owned() } else { format!("[{}]", self.path) }
    }

    fn ask(&mut self, key: &'static str) -> Option<&'a SpecNode> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        self.node.get(key)
    }

    fn need(&mut self, key: &'static str) -> Result<&'a SpecNode, FileError> {
        self.ask(key).ok_or_else(|| self.missing(key))
    }

    /// Returns a key that is not there, unless another one looks like it.
    fn missing(&self, key: &'static str) -> FileError {
        let strangers =
            self.node.entries().iter().filter(|(name, _)| !self.asked.contains(&name.as_str()));
        for (name, node) in strangers {
            if looks_like(name, key) {
                return self.unknown_but(name, node, key);
            }
        }
        self.node.place.wrong(format!("{} has no `{key}`", self.room()))
    }

    fn unknown_but(&self, name: &str, node: &SpecNode, key: &str) -> FileError {
        node.place.wrong(format!("unknown key `{name}` in {}; did you mean `{key}`?", self.room()))
    }

    fn mistyped(&self, key: &str, node: &SpecNode, found: &Value, wanted: &str) -> FileError {
        node.place.wrong(format!("{}: {} where {wanted} belongs", self.path_of(key), found.kind()))
    }

    fn record(&mut self, key: &str, node: &SpecNode) {
        self.figures.push(Figure {
            key: self.path_of(key),
            value: shown(&node.value),
            source: node.origin.source.clone(),
            confidence: node.origin.confidence,
        });
    }
}

fn whole<T: TryFrom<i64> + Into<i64> + Copy>(
    node: &SpecNode,
    path: &str,
    range: RangeInclusive<T>,
) -> Result<T, FileError> {
    let (least, most): (i64, i64) = ((*range.start()).into(), (*range.end()).into());
    let wrong = |what: String| {
        node.place
            .wrong(format!("{path}: {what}; it must be a whole number from {least} to {most}"))
    };
    match &node.value {
        Value::Integer(number) if (least..=most).contains(number) => {
            T::try_from(*number).map_err(|_| wrong(format!("{number}")))
        }
        Value::Integer(number) => Err(wrong(format!("{number}"))),
        other => Err(wrong(other.kind().to_owned())),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::List(items) => {
            items.iter().map(|item| shown(&item.value)).collect::<Vec<_>>().join(", ")
        }
        Value::Table(_) => String::new(),
    }
}

/// Returns "did you mean" or the list of what there is, for a word that is not among `known`.
pub(super) fn nearest(word: &str, known: &[&str]) -> String {
    match known.iter().min_by_key(|candidate| distance(word, candidate)) {
        Some(best) if looks_like(word, best) => format!("did you mean `{best}`?"),
        _ => format!("there are {}", known.join(", ")),
    }
}

/// Returns whether `word` may be a mistyped `candidate`: a third of the letters wrong is a typing
/// mistake; more is another word.
fn looks_like(word: &str, candidate: &str) -> bool {
    distance(word, candidate) <= word.len().div_ceil(3)
}

/// Letters to add, drop or change (Levenshtein). A word longer than any key is far from all of
/// them.
fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 64;
    if a.len().max(b.len()) > LONGEST {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tree;

    fn read<T>(
        text: &str,
        with: impl FnOnce(&mut Section<'_>) -> Result<T, FileError>,
    ) -> Result<T, String> {
        let tree = tree::parse("f", text).map_err(|error| error.to_string())?;
        let mut section = Section::new(&tree, String::new()).map_err(|error| error.to_string())?;
        let value = with(&mut section).map_err(|error| error.to_string())?;
        section.close(&mut Vec::new()).map_err(|error| error.to_string())?;
        Ok(value)
    }

    #[test]
    fn section__a_bare_number_where_a_unit_belongs_is_refused() {
        let sentence = read("a = 1\nrate = 100", |s| s.rate("rate")).unwrap_err();
        assert!(
            sentence.starts_with("f: line 2: rate: `100` needs one of the units b/s"),
            "{sentence}"
        );
    }

    #[test]
    fn section__misspelt_keys_get_the_nearest_one() {
        assert_eq!(
            read("\ndealy = \"1ns\"", |s| s.time("delay")).unwrap_err(),
            "f: line 2: unknown key `dealy` in a fabric file; did you mean `delay`?"
        );
        assert_eq!(
            read("delay = \"1ns\"\nelephant = 1", |s| s.time("delay")).unwrap_err(),
            "f: line 2: unknown key `elephant` in a fabric file; there are delay"
        );
        assert_eq!(
            read("", |s| s.time("delay")).unwrap_err(),
            "f: line 1: a fabric file has no `delay`"
        );
    }

    #[test]
    fn section__counts_have_bounds() {
        assert_eq!(read("n = [1, 255]", |s| s.counts("n", 0u8..=255)), Ok(vec![1, 255]));
        assert_eq!(
            read("n = [\n1,\n256]", |s| s.counts("n", 0u8..=255)).unwrap_err(),
            "f: line 3: n: 256; it must be a whole number from 0 to 255"
        );
    }

    #[test]
    fn section__a_choice_lists_what_there_is() {
        assert_eq!(
            read("k = \"sta\"", |s| s.choice("k", &[("star", 1), ("tree", 2)])).unwrap_err(),
            "f: line 1: k: `sta` is not known; did you mean `star`?"
        );
    }
}
