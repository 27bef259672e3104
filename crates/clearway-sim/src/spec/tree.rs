//! A fabric file as a tree in which every value knows its file, its line, and who vouches for it.
//!
//! # Model
//! A table with the key `value` is a figure: the value, who says so, how far to trust it. `source`
//! and `confidence` in any other table speak for all figures in it that do not speak for
//! themselves. One tree is laid over another key by key; a table of another `kind` replaces the
//! whole table, because the keys of two kinds have nothing to do with each other.
//!
//! # Invariants
//! I1. A value laid over another takes its own vouching with it and nothing of the other's.

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::figure::Confidence;
use super::file::FileError;

/// Where something stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePosition {
    pub(super) file: Arc<str>,
    pub(super) line: u32,
}

impl FilePosition {
    /// Returns an error here.
    pub(super) fn wrong(&self, why: impl Into<String>) -> FileError {
        FileError::Wrong { file: self.file.to_string(), line: self.line, why: why.into() }
    }
}

/// The source that vouches for a figure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FigureSource {
    pub(super) source: Option<String>,
    pub(super) confidence: Option<Confidence>,
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpecNode {
    pub(super) value: Value,
    pub(super) place: FilePosition,
    pub(super) origin: FigureSource,
}

/// What files can hold. Floats, truth values and dates have no use here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    List(Vec<SpecNode>),
    /// In the order of the file.
    Table(Vec<(String, SpecNode)>),
}

impl Value {
    /// Returns what a person calls it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Integer(_) => "a bare number",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

impl SpecNode {
    /// Returns the entries of a table; none of anything else.
    pub(super) fn entries(&self) -> &[(String, Self)] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the entry `key` of a table.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// Returns where the dotted `path` stands, or as much of it as there is.
    pub(super) fn place_of(&self, path: &str) -> &FilePosition {
        let mut node = self;
        for key in path.split('.') {
            match node.get(key) {
                Some(inner) => node = inner,
                None => break,
            }
        }
        &node.place
    }

    /// Returns where the file that extends others speaks of the dotted `path`: there, or at the
    /// nearest table around it. The word of a shipped fabric was right until something was laid
    /// over it.
    pub(super) fn blame(&self, path: &str) -> &FilePosition {
        let mut node = self;
        let mut blamed = &self.place;
        for key in path.split('.') {
            let Some(inner) = node.get(key) else { break };
            node = inner;
            if node.place.file == self.place.file {
                blamed = &node.place;
            }
        }
        blamed
    }

    /// Lays `over` over this tree.
    pub(super) fn lay(&mut self, over: Self) {
        let same_kind = self.kind_key() == over.kind_key() || over.kind_key().is_none();
        match (&mut self.value, over) {
            (Value::Table(under), Self { value: Value::Table(entries), place, .. })
                if same_kind =>
            {
                for (key, node) in entries {
                    match under.iter_mut().find(|(name, _)| *name == key) {
                        Some((_, old)) => old.lay(node),
                        None => under.push((key, node)),
                    }
                }
                self.place = place;
            }
            (_, over) => *self = over,
        }
    }

    fn kind_key(&self) -> Option<&Value> {
        self.get("kind").map(|node| &node.value)
    }
}

/// Reads text into a tree.
///
/// # Errors
/// The line of what is no TOML, or of a value that nothing takes.
pub(super) fn parse(file: &str, text: &str) -> Result<SpecNode, FileError> {
    let growing = TreeSource { file: file.into(), starts: line_starts(text) };
    let root = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        growing.place(at).wrong(plainly(text, &error))
    })?;
    growing.table(root.get_ref(), 0, &FigureSource::default())
}

/// Returns what is wrong with text that is no TOML, in one sentence.
pub(crate) fn plainly(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', "; ");
    let key =
        error.span().and_then(|span| text.get(span)).map(|key| key.trim_matches(['[', ']', ' ']));
    match key {
        Some(key) if message == "duplicate key" => {
            format!("`{key}` stands here for the second time; keep one of them")
        }
        _ => message,
    }
}

fn line_starts(text: &str) -> Vec<usize> {
    text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1).collect()
}

/// The file a tree grows from.
struct TreeSource {
    file: Arc<str>,
    /// Where lines after the first begin.
    starts: Vec<usize>,
}

impl TreeSource {
    fn place(&self, at: usize) -> FilePosition {
        let line = self.starts.partition_point(|start| *start <= at) + 1;
        FilePosition { file: Arc::clone(&self.file), line: line as u32 }
    }

    fn node(
        &self,
        value: &Spanned<DeValue<'_>>,
        at: usize,
        inherited: &FigureSource,
    ) -> Result<SpecNode, FileError> {
        let place = self.place(at);
        let value = match value.get_ref() {
            DeValue::Table(table) => return self.table(table, at, inherited),
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => {
                let digits = i64::from_str_radix(number.as_str(), number.radix());
                Value::Integer(digits.map_err(|_| place.wrong(format!("`{number}` is too large")))?)
            }
            DeValue::Array(array) => {
                let items = array.iter().map(|item| self.node(item, item.span().start, inherited));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            other => {
                let why = format!(
                    "a {} means nothing here; write text with a unit, or a whole number",
                    other.type_str()
                );
                return Err(place.wrong(why));
            }
        };
        Ok(SpecNode { value, place, origin: inherited.clone() })
    }

    fn table(
        &self,
        table: &DeTable<'_>,
        at: usize,
        inherited: &FigureSource,
    ) -> Result<SpecNode, FileError> {
        let own = self.origin(table)?;
        let is_figure = table.contains_key("value");
        let origin = FigureSource {
            source: own.source.or_else(|| inherited.source.clone()),
            confidence: own.confidence.or(inherited.confidence),
        };
        let mut entries = Vec::new();
        for (key, value) in table
            .iter()
            .filter(|(key, _)| !matches!(key.get_ref().as_ref(), "source" | "confidence"))
        {
            let name = key.get_ref();
            if is_figure && name != "value" {
                let why = format!(
                    "unknown key `{name}` next to `value`; there are value, source, confidence"
                );
                return Err(self.place(key.span().start).wrong(why));
            }
            let node = self.node(value, key.span().start, &origin)?;
            entries.push((key.span().start, (name.to_string(), node)));
        }
        if is_figure && let Some((_, (_, node))) = entries.pop() {
            return Ok(node);
        }
        entries.sort_by_key(|(start, _)| *start);
        let entries = entries.into_iter().map(|(_, entry)| entry).collect();
        Ok(SpecNode { value: Value::Table(entries), place: self.place(at), origin })
    }

    fn origin(&self, table: &DeTable<'_>) -> Result<FigureSource, FileError> {
        let text = |key: &str| match table.get_key_value(key) {
            None => Ok(None),
            Some((name, value)) => {
                let place = self.place(name.span().start);
                let text = value
                    .get_ref()
                    .as_str()
                    .ok_or_else(|| place.wrong(format!("`{key}` must be text")))?;
                Ok(Some((text.to_owned(), place)))
            }
        };
        let source = text("source")?.map(|(source, _)| source);
        let Some((word, place)) = text("confidence")? else {
            return Ok(FigureSource { source, confidence: None });
        };
        let names = Confidence::ALL.map(Confidence::name);
        let found = Confidence::ALL.into_iter().find(|confidence| confidence.name() == word);
        let confidence = found.ok_or_else(|| {
            place.wrong(format!("`{word}` is no confidence; there are {}", names.join(", ")))
        })?;
        Ok(FigureSource { source, confidence: Some(confidence) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__figures_take_the_vouching_of_their_table_unless_they_have_their_own() {
        let text = "[a]\nsource = \"s\"\nconfidence = \"paper\"\nx = 1\ny = { value = \"2ns\", source = \"t\" }\n";
        let tree = parse("f", text).unwrap();
        let a = tree.get("a").unwrap();
        let said = |key: &str| a.get(key).unwrap().origin.clone();
        assert_eq!(
            said("x"),
            FigureSource { source: Some("s".into()), confidence: Some(Confidence::Paper) }
        );
        assert_eq!(
            said("y"),
            FigureSource { source: Some("t".into()), confidence: Some(Confidence::Paper) }
        );
        assert_eq!(a.get("y").unwrap().value, Value::Text("2ns".into()));
        assert_eq!(tree.place_of("a.y").line, 5);
        assert_eq!(tree.place_of("a.z").line, 1);
    }

    #[test]
    fn lay__keys_are_replaced_one_by_one_and_another_kind_replaces_the_table() {
        let mut under = parse(
            "u",
            "[a]\nkind = \"k\"\nx = { value = 1, source = \"s\" }\n[b]\nkind = \"k\"\nx = 1",
        )
        .unwrap();
        under.lay(parse("o", "[a]\nx = 2\n[b]\nkind = \"l\"\ny = 1").unwrap());
        let x = under.get("a").unwrap().get("x").unwrap();
        assert_eq!((&x.value, &x.origin.source), (&Value::Integer(2), &None));
        assert!(under.get("a").unwrap().get("kind").is_some());
        assert!(under.get("b").unwrap().get("x").is_none());
    }

    #[test]
    fn parse__what_means_nothing_is_named_with_its_line() {
        let sentence = |text| parse("f", text).unwrap_err().to_string();
        assert_eq!(
            sentence("a = 1\nb = 1.5"),
            "f: line 2: a float means nothing here; write text with a unit, or a whole number"
        );
        assert_eq!(
            sentence("a = { value = 1, confidence = \"sure\" }"),
            "f: line 1: `sure` is no confidence; there are measured, vendor, paper, config, guess"
        );
        assert!(sentence("a = \n").starts_with("f: line 1: "));
    }
}
