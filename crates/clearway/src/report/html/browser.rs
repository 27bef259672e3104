//! Opens the page in a real browser, narrow and wide, light and dark, and lets it tell whether all
//! of it was drawn.
//!
//! # Model
//! A browser's own window cannot be as narrow as a telephone, so one outer page shows the report in
//! four frames, each with a width and a colour scheme, and copies what each frame says about itself
//! into its own text. The browser prints that text.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::report::model::Report;
use crate::report::present::Presenter;
use crate::report::store;

const WIDTHS: [u32; 2] = [1280, 400];
const SCHEMES: [&str; 2] = ["light", "dark"];

/// Copies the attributes of each frame's root when all frames are loaded.
const COPY: &str = "onload = () => { for (const {contentDocument} of document.querySelectorAll('iframe')) { const note = document.createElement('pre'); \
    const said = contentDocument.documentElement.dataset; note.className = 'note'; \
    note.textContent = Object.keys(said).sort().map(key => key + '=' + said[key]).join(' '); document.body.append(note); } };";

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|dir| names.map(|name| dir.join(name)))
        .find(|file| file.is_file())
}

/// Returns the outer page.
fn frames() -> String {
    let mut page = format!(
        "<!doctype html><meta charset=\"utf-8\"><link rel=\"icon\" href=\"data:,\"><script>{COPY}</script>"
    );
    for width in WIDTHS {
        for scheme in SCHEMES {
            let style = format!("width:{width}px;height:900px;border:0;color-scheme:{scheme}");
            page.push_str(&format!(
                "<iframe src=\"{}\" style=\"{style}\"></iframe>",
                store::HTML_NAME
            ));
        }
    }
    page
}

/// Returns what each frame says about itself, and the browser's log.
fn look(browser: &Path, dir: &Path) -> (Vec<String>, String) {
    std::fs::write(dir.join("frames.html"), frames()).expect("written");
    // A minute bounds a browser that hangs; a look takes two seconds.
    let seen = Command::new("timeout")
        .arg("60")
        .arg(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--enable-logging=stderr",
            "--v=0",
        ])
        .args(["--allow-file-access-from-files", "--window-size=1400,900"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .args(["--dump-dom", &format!("file://{}", dir.join("frames.html").display())])
        .output()
        .expect("the browser starts");
    let page = String::from_utf8_lossy(&seen.stdout).into_owned();
    let notes =
        page.split("<pre class=\"note\">").skip(1).filter_map(|rest| rest.split("</pre>").next());
    (notes.map(str::to_owned).collect(), String::from_utf8_lossy(&seen.stderr).into_owned())
}

/// Fails unless `report` is drawn whole, without an error and no wider than the window, everywhere.
pub(crate) fn check(name: &str, report: &Report, presenters: &[&dyn Presenter], charts: usize) {
    let Some(browser) = browser() else {
        eprintln!("skipped: chromium is not installed");
        return;
    };
    let dir = std::env::temp_dir().join(format!("clearway-browser-{}-{name}", std::process::id()));
    store::write(&dir, report, presenters).expect("written");
    let (notes, log) = look(&browser, &dir);
    let expected = WIDTHS.iter().flat_map(|width| {
        SCHEMES.map(|scheme| {
            format!("charts={charts} drawn={charts} overflow=0 scheme={scheme} scrolling=0 width={width}")
        })
    });
    assert_eq!(notes, expected.collect::<Vec<_>>(), "{log}");
    assert!(!log.contains("CONSOLE"), "{log}");
    let _ = std::fs::remove_dir_all(dir);
}
