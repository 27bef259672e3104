//! Keeps reports on disk: a file is whole or unchanged, and what is read back is checked.
//!
//! # Invariants
//! I1. Whatever fails (full disk, missing right, lost power), `report.json` and `report.html` are
//!     each the old or the new one.
//! I2. No failure leaves a file aside.
//! I3. Reading takes at most [`SIZE_MAX`] bytes into memory, from a regular file only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::html;
use super::model::{Report, SCHEMA};
use super::present::Presenter;

/// The measured figures, for programs.
pub(crate) const JSON_NAME: &str = "report.json";

/// The same, for people.
pub(crate) const HTML_NAME: &str = "report.html";

/// The link to the newest of several numbered runs.
pub(crate) const LATEST: &str = "latest";

/// The largest report that is read: a heat map of 1000 x 1000 hosts takes 20 MB, so three of them
/// fit.
const SIZE_MAX: u64 = 64 << 20;

/// Writes `report.json` and `report.html` into `dir`, which is made when it is missing.
///
/// # Errors
/// One sentence that names the file and the cause. Each of the two files is then the old or the new
/// one, whole.
pub(crate) fn write(dir: &Path, report: &Report, presenters: &[&dyn Presenter]) -> Result<()> {
    let mut json = serde_json::to_vec_pretty(report).context("cannot write the report as JSON")?;
    json.push(b'\n');
    fs::create_dir_all(dir)
        .map_err(|e| anyhow::anyhow!("cannot make the directory {}: {e}", dir.display()))?;
    replace(&dir.join(JSON_NAME), &json)?;
    replace(&dir.join(HTML_NAME), html::render(report, presenters).as_bytes())
}

/// Writes `report.html` next to the `report.json` of `dir` again.
///
/// # Errors
/// As [`read`] and [`write()`].
pub(crate) fn render_again(dir: &Path, presenters: &[&dyn Presenter]) -> Result<Report> {
    let report = read(dir, presenters)?;
    replace(&dir.join(HTML_NAME), html::render(&report, presenters).as_bytes())?;
    Ok(report)
}

/// Puts `bytes` at `path` in one step.
///
/// # Errors
/// One sentence; the file at `path` is unchanged then.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    replace_by(path, |file| file.write_all(bytes)).map_err(|e| {
        anyhow::anyhow!("cannot write {}: {e}; no half-written file was left", path.display())
    })
}

/// Fills a new file next to `path` and renames it to `path` once it is safe on disk.
fn replace_by(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_string_lossy();
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let aside = dir.join(format!(".{name}.{}.part", std::process::id()));
    let filled = fill_aside(&aside, fill).and_then(|()| fs::rename(&aside, path));
    if filled.is_err() {
        // I2. The first error is the one worth telling.
        let _ = fs::remove_file(&aside);
        return filled;
    }
    File::open(dir)?.sync_all()
}

fn fill_aside(aside: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(aside)?;
    fill(&mut file)?;
    file.sync_all()
}

/// Returns `dir`, or the newest run in it where it has numbered ones.
pub(crate) fn newest(dir: &Path) -> PathBuf {
    let latest = dir.join(LATEST);
    if !dir.join(JSON_NAME).exists() && latest.join(JSON_NAME).exists() {
        latest
    } else {
        dir.to_owned()
    }
}

/// Reads a report back; `path` is a `report.json`, the directory that holds one, or one of numbered
/// runs, of which the newest counts.
///
/// # Errors
/// One sentence that says what is wrong with which file: missing, too large, cut short, not JSON,
/// another schema, a part that its presenter refuses.
pub(crate) fn read(path: &Path, presenters: &[&dyn Presenter]) -> Result<Report> {
    let path = if path.is_dir() { newest(path).join(JSON_NAME) } else { path.to_owned() };
    let bytes = read_bounded(&path)?;
    parse(&bytes, presenters).map_err(|reason| anyhow::anyhow!("{} {reason}", path.display()))
}

fn read_bounded(path: &PathBuf) -> Result<Vec<u8>> {
    let cannot = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!(
            "there is no report at {}; the directory of a run works, as in out/demo",
            path.display()
        ),
        _ => anyhow::anyhow!("cannot read {}: {e}", path.display()),
    };
    // Asked before opening: a named pipe would wait for its writer.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        bail!("{} is not a regular file", path.display());
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(cannot)?.take(SIZE_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > SIZE_MAX {
        bail!("{} is larger than {} MiB, which no report is", path.display(), SIZE_MAX >> 20);
    }
    Ok(bytes)
}

/// The one field that says how to read the others.
#[derive(Deserialize)]
struct FormatHeader {
    schema: String,
}

/// Returns the report in `bytes`, or the end of a sentence that begins with the file's name.
fn parse(bytes: &[u8], presenters: &[&dyn Presenter]) -> Result<Report, String> {
    let head: FormatHeader = serde_json::from_slice(bytes).map_err(|e| match e.classify() {
        serde_json::error::Category::Data if !bytes.trim_ascii_start().starts_with(b"{") => {
            format!("is not a report: a report is one JSON object with the schema {SCHEMA}")
        }
        _ => reason(&e),
    })?;
    let newer_minor = head.schema.strip_prefix(SCHEMA).and_then(|rest| rest.strip_prefix('.'));
    if head.schema != SCHEMA && newer_minor.is_none() {
        let schema = head.schema.chars().take(40).collect::<String>().escape_debug().to_string();
        return Err(format!("has the schema `{schema}`; this program reads {SCHEMA}"));
    }
    let report = serde_json::from_slice(bytes).map_err(|e| reason(&e))?;
    let checked = presenters.iter().try_for_each(|presenter| presenter.check(&report));
    checked.map_err(|why| format!("is not a report: {}", super::numerals::printable(&why)))?;
    Ok(report)
}

fn reason(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let plain = super::numerals::printable(&error.to_string());
    match error.classify() {
        Category::Eof if error.line() <= 1 && error.column() == 0 => {
            "is empty, not a report".to_owned()
        }
        Category::Eof => {
            format!("is cut short at line {}: it was not written to its end", error.line())
        }
        Category::Syntax | Category::Io => format!("is not JSON: {plain}"),
        Category::Data => format!("is not a report: {plain}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use serde_json::Value;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A directory of its own for each test, removed at the end.
    struct StoreDirectory(PathBuf);

    impl StoreDirectory {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let dir =
                std::env::temp_dir().join(format!("clearway-store-{}-{n}", std::process::id()));
            fs::create_dir_all(&dir).expect("a scratch directory");
            Self(dir)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("listed");
            let mut names: Vec<String> = entries
                .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for StoreDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn refusal(text: &str) -> String {
        let scratch = StoreDirectory::new();
        fs::write(scratch.0.join(JSON_NAME), text).expect("written");
        let sentence = read(&scratch.0, &[]).expect_err("refused").to_string();
        assert!(!sentence.contains('\n'), "{sentence}");
        sentence.split(JSON_NAME).nth(1).expect("names the file").trim().to_owned()
    }

    #[test]
    fn write__then_read_gives_the_same_report_and_leaves_two_files() {
        let scratch = StoreDirectory::new();
        let report = sample::incast_demo();
        write(&scratch.0.join("new/dir"), &report, &[]).expect("written");
        assert_eq!(read(&scratch.0.join("new/dir"), &[]).expect("read"), report);
        assert_eq!(read(&scratch.0.join("new/dir/report.json"), &[]).expect("read"), report);
        write(&scratch.0, &report, &[]).expect("written");
        write(&scratch.0, &report, &[]).expect("written over the old one");
        assert_eq!(scratch.names(), ["new", HTML_NAME, JSON_NAME]);
    }

    #[test]
    fn replace__a_full_disk_leaves_the_old_file_and_nothing_aside() {
        let scratch = StoreDirectory::new();
        let path = scratch.0.join(JSON_NAME);
        replace(&path, b"old").expect("written");
        let full = |file: &mut File| {
            file.write_all(b"half of the ne")?;
            Err(io::ErrorKind::StorageFull.into())
        };
        assert_eq!(replace_by(&path, full).expect_err("full").kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).expect("read"), b"old");
        assert_eq!(scratch.names(), [JSON_NAME]);
    }

    #[test]
    fn replace__a_directory_in_the_way_is_reported_in_one_sentence() {
        let scratch = StoreDirectory::new();
        fs::create_dir(scratch.0.join(JSON_NAME)).expect("made");
        let sentence =
            replace(&scratch.0.join(JSON_NAME), b"new").expect_err("refused").to_string();
        assert!(
            sentence.starts_with("cannot write /")
                && sentence.ends_with("no half-written file was left"),
            "{sentence}"
        );
        assert_eq!(scratch.names(), [JSON_NAME]);
    }

    #[test]
    fn read__says_what_is_wrong_with_the_file() {
        let whole = serde_json::to_string_pretty(&sample::incast_demo()).expect("written");
        assert_eq!(refusal(""), "is empty, not a report");
        assert!(refusal(&whole[..whole.len() / 2]).starts_with("is cut short at line "));
        assert!(refusal("\u{7f}ELF").starts_with("is not JSON: expected value"));
        assert!(
            refusal("{\"figures\": []}").starts_with("is not a report: missing field `schema`")
        );
        assert!(
            refusal(&whole.replace("\"seed\": 19,", "\"seed\": \"x\","))
                .starts_with("is not a report: invalid type")
        );
        for other in ["[]", " [1]", "7", "null"] {
            assert!(
                refusal(other).starts_with("is not a report: a report is one JSON object"),
                "{other}"
            );
        }
        assert!(refusal(&"[".repeat(100_000)).starts_with("is not"));
    }

    #[test]
    fn read__refuses_another_major_schema_and_takes_a_newer_minor_one() {
        let whole = serde_json::to_string(&sample::incast_demo()).expect("written");
        for other in ["clearway-report/2", "clearway-report/12", "gpcnet", ""] {
            let sentence = refusal(&whole.replace(SCHEMA, other));
            assert_eq!(
                sentence,
                format!("has the schema `{other}`; this program reads clearway-report/1")
            );
        }
        let mut newer: Value = serde_json::from_str(&whole).expect("read");
        newer["schema"] = "clearway-report/1.7".into();
        newer["unheard_of"] = Value::Bool(true);
        newer["figures"][0]["unheard_of"] = Value::Null;
        newer.as_object_mut().expect("an object").remove("draws");
        let read = parse(newer.to_string().as_bytes(), &[]).expect("read");
        assert!(read.draws.is_empty() && !read.figures.is_empty());
    }

    #[test]
    fn read__refuses_what_is_huge_or_not_a_file() {
        let scratch = StoreDirectory::new();
        let path = scratch.0.join(JSON_NAME);
        File::create(&path).and_then(|file| file.set_len(SIZE_MAX + 1)).expect("a sparse file");
        assert!(
            read(&path, &[])
                .expect_err("huge")
                .to_string()
                .ends_with("is larger than 64 MiB, which no report is")
        );
        assert!(
            read(Path::new("/dev/zero"), &[])
                .expect_err("a device")
                .to_string()
                .ends_with("is not a regular file")
        );
        let missing = read(&scratch.0.join("none"), &[]).expect_err("missing").to_string();
        assert!(
            missing.starts_with("there is no report at ") && missing.contains("out/demo"),
            "{missing}"
        );
    }
}
