//! What users set by environment variables: `SHMEM_*`, and the older `SMA_*`.
//!
//! # Source
//! OpenSHMEM 1.6, "Environment Variables".

use std::env;

use clearway_proto::base::Class;
use clearway_wires::WireName;

/// What the environment says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `SHMEM_SYMMETRIC_SIZE`: bytes of each heap.
    pub(crate) heap: Option<usize>,
    /// `SHMEM_DEBUG`: arguments are checked that cost time to check.
    pub(crate) debug: bool,
    /// `SHMEM_VERSION`: PE 0 prints the version.
    pub(crate) version: bool,
    /// `SHMEM_INFO`: PE 0 prints these variables.
    pub(crate) list: bool,
    /// `SHMEM_STATICS`: whether variables of the executable are symmetric.
    pub(crate) statics: StaticsWish,
    /// `SHMEM_NEAR`: PEs of consecutive numbers that share memory, where fewer share than can.
    pub(crate) near: Option<usize>,
    /// `SHMEM_WIRE`: what carries operations between hosts.
    pub(crate) wire: Option<WireName>,
    /// `SHMEM_INSECURE`: what travels between hosts need not be sealed.
    pub(crate) insecure: bool,
    /// `SHMEMX_QUEUE_THRESHOLD`: bytes at which gathered operations leave; 0 gathers nothing.
    pub(crate) threshold: Option<usize>,
    /// `SHMEM_CLASS`: the class of operations that ask for none.
    pub(crate) class: WishedClass,
}

/// The class of the default context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WishedClass(pub(crate) Class);

impl Default for WishedClass {
    fn default() -> Self {
        Self(Class::BestEffort)
    }
}

/// What becomes of the executable's variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StaticsWish {
    /// They are shared if the process has one thread.
    #[default]
    Auto,
    /// They stay private.
    Private,
}

/// The help of `SHMEM_INFO`.
pub(crate) const VARIABLES: &str = "\
SHMEM_SYMMETRIC_SIZE  bytes of each PE's symmetric heap, with k, m, g or t (default 1g, less where memory is short)
SHMEM_DEBUG           check arguments, and report errors (default 0)
SHMEM_VERSION         print the version of the library (default 0)
SHMEM_INFO            print these lines (default 0)
SHMEM_STATICS         auto or private: whether variables of the executable are symmetric (default auto)
SHMEM_NEAR            how many PEs of consecutive numbers share memory (default: all of a host)
SHMEM_CLASS           high, medium, low or scavenger: the class of traffic between hosts (default medium)
SHMEM_WIRE            auto, udp or ofi (libfabric): transport between hosts (default auto)
SHMEM_INSECURE        do not seal traffic between hosts (default 0)

SHMEMX_QUEUE_THRESHOLD bytes at which queues and sessions send a message, 0 for no aggregation (default 4k)";

impl Settings {
    /// Reads the process environment.
    ///
    /// # Errors
    /// A variable has a wrong value; the sentence says what works.
    pub(crate) fn read() -> Result<Self, String> {
        Self::parse(|name| env::var(name).ok())
    }

    fn parse(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let value =
            |name: &str| get(&format!("SHMEM_{name}")).or_else(|| get(&format!("SMA_{name}")));
        let is_on =
            |name: &str| value(name).is_some_and(|value| !["", "0"].contains(&value.trim()));
        let heap = value("SYMMETRIC_SIZE").filter(|text| !text.trim().is_empty());
        let heap =
            heap.map(|text| parse_size(&text).ok_or_else(|| wrong_size(&text))).transpose()?;
        let statics = match value("STATICS").as_deref().map(str::trim) {
            None | Some("" | "auto") => StaticsWish::Auto,
            Some("private") => StaticsWish::Private,
            Some(other) => {
                return Err(format!("SHMEM_STATICS is `{other}`; set it to auto or private"));
            }
        };
        let near = match value("NEAR").as_deref().map(str::trim) {
            None | Some("") => None,
            Some(text) => Some(text.parse().ok().filter(|near| *near > 0).ok_or_else(|| {
                format!("SHMEM_NEAR is `{text}`; set it to a number of PEs above 0")
            })?),
        };
        let wire = match value("WIRE").as_deref().map(str::trim) {
            None | Some("" | "auto") => None,
            Some("udp") => Some(WireName::Udp),
            Some("ofi") => Some(WireName::Ofi),
            Some(other) => {
                return Err(format!("SHMEM_WIRE is `{other}`; set it to auto, udp or ofi"));
            }
        };
        let class = match value("CLASS").as_deref().map(str::trim) {
            None | Some("" | "medium") => Class::BestEffort,
            Some("high") => Class::LowLatency,
            Some("low") => Class::Bulk,
            Some("scavenger") => Class::Scavenger,
            Some(other) => {
                return Err(format!(
                    "SHMEM_CLASS is `{other}`; set it to high, medium, low or scavenger"
                ));
            }
        };
        let threshold = get("SHMEMX_QUEUE_THRESHOLD").filter(|text| !text.trim().is_empty());
        let threshold = threshold
            .map(|text| parse_threshold(&text).ok_or_else(|| wrong_threshold(&text)))
            .transpose()?;
        Ok(Self {
            heap,
            threshold,
            debug: is_on("DEBUG"),
            version: is_on("VERSION"),
            list: is_on("INFO"),
            statics,
            near,
            wire,
            insecure: is_on("INSECURE"),
            class: WishedClass(class),
        })
    }
}

fn wrong_size(text: &str) -> String {
    format!(
        "SHMEM_SYMMETRIC_SIZE is `{text}`; set it to a number of bytes above 0, with k, m, g or t behind it for larger units"
    )
}

/// A number of bytes, or 0.
fn parse_threshold(text: &str) -> Option<usize> {
    if text.trim() == "0" { Some(0) } else { parse_size(text) }
}

fn wrong_threshold(text: &str) -> String {
    format!("SHMEMX_QUEUE_THRESHOLD is `{text}`; set it to bytes as in 4096 or 4k, or to 0")
}

/// A number of bytes, rounded up: digits with a point or without, and a unit.
fn parse_size(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, shift) = match text.chars().last()?.to_ascii_lowercase() {
        'k' => (&text[..text.len() - 1], 10),
        'm' => (&text[..text.len() - 1], 20),
        'g' => (&text[..text.len() - 1], 30),
        't' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.chars().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || whole.len() + part.len() == 0 {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: f64 = if part.is_empty() { 0.0 } else { format!("0.{part}").parse().ok()? };
    let unit = 1u64 << shift;
    let bytes = whole.checked_mul(unit)?.checked_add((fraction * unit as f64).ceil() as u64)?;
    usize::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(variables: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::parse(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn parse_size__points_and_units_are_read_and_rounded_up() {
        let sizes = [
            ("1", 1),
            ("20M", 20 << 20),
            ("3.1m", 3_250_586),
            (".5m", 1 << 19),
            ("2g", 2 << 30),
            ("1.k", 1024),
            ("0.0001k", 1),
            (" 7K ", 7 << 10),
            ("1t", 1 << 40),
        ];
        for (text, bytes) in sizes {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "0",
            "m",
            ".",
            "-1",
            "1e3",
            "1mb",
            "0x10",
            "1..2",
            "99999999999999999999",
            "99999999t",
        ] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn parse__old_names_count_and_wrong_values_are_named() {
        assert_eq!(parsed(&[]), Ok(Settings::default()));
        let settings =
            parsed(&[("SMA_SYMMETRIC_SIZE", "1k"), ("SHMEM_DEBUG", "1"), ("SMA_VERSION", "0")]);
        assert_eq!(settings, Ok(Settings { heap: Some(1024), debug: true, ..Settings::default() }));
        assert!(
            parsed(&[("SHMEM_SYMMETRIC_SIZE", "many")])
                .unwrap_err()
                .starts_with("SHMEM_SYMMETRIC_SIZE is `many`;")
        );
        assert!(
            parsed(&[("SHMEMX_QUEUE_THRESHOLD", "all")])
                .unwrap_err()
                .starts_with("SHMEMX_QUEUE_THRESHOLD is `all`;")
        );
        for (text, bytes) in [("0", 0), ("2k", 2_048)] {
            let settings = parsed(&[("SHMEMX_QUEUE_THRESHOLD", text)]);
            assert_eq!(settings.map(|settings| settings.threshold), Ok(Some(bytes)));
        }
        assert!(
            parsed(&[("SHMEM_STATICS", "x")]).unwrap_err().ends_with("set it to auto or private")
        );
        for name in ["SHMEM_WIRE", "SHMEM_CLASS", "SHMEM_NEAR"] {
            assert!(
                parsed(&[(name, "x")]).unwrap_err().starts_with(&format!("{name} is `x`; set"))
            );
        }
        let far =
            parsed(&[("SHMEM_WIRE", "udp"), ("SHMEM_CLASS", "high"), ("SHMEM_INSECURE", "1")]);
        let (wire, class) = (Some(WireName::Udp), WishedClass(Class::LowLatency));
        assert_eq!(far, Ok(Settings { wire, class, insecure: true, ..Settings::default() }));
    }
}
