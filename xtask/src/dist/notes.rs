//! What the changelog says of one version, for readers of a release and of Debian's changelog.

use anyhow::{Context, Result, ensure};

/// Returns the section of `version` in a changelog, without its heading.
pub(super) fn section<'a>(changelog: &'a str, version: &str) -> Result<&'a str> {
    let heading = format!("## [{version}]");
    let begin = changelog
        .match_indices(&heading)
        .map(|(at, _)| at)
        .find(|at| *at == 0 || changelog.as_bytes().get(at - 1) == Some(&b'\n'))
        .with_context(|| format!("CHANGELOG.md has no section `{heading}`; add one"))?;
    let rest = changelog.get(begin..).unwrap_or_default();
    let rest = rest.split_once('\n').map_or("", |(_, after)| after);
    let text = rest.find("\n## ").map_or(rest, |end| rest.get(..end).unwrap_or(rest)).trim();
    ensure!(
        !text.is_empty(),
        "the section `{heading}` of CHANGELOG.md is empty; describe the version"
    );
    Ok(text)
}

/// Returns the notes of a release: the section of its version, with links that lead to the
/// repository at that version.
pub(super) fn release_notes(changelog: &str, version: &str, repository: &str) -> Result<String> {
    let text = section(changelog, version)?;
    let mut pieces = text.split("](");
    let mut notes = format!("# Clearway {version}\n\n{}", pieces.next().unwrap_or_default());
    for piece in pieces {
        notes.push_str("](");
        let is_whole = ["http:", "https:", "#"].iter().any(|begin| piece.starts_with(begin));
        if !is_whole {
            notes.push_str(&format!("{repository}/blob/v{version}/"));
        }
        notes.push_str(piece);
    }
    notes.push('\n');
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\nSee ## [0.2.0].\n\n## [Unreleased]\n\n## [0.2.0]\n\n### Added\n\n- a [page](docs/a.md), [site](https://a.example)\n\n## [0.1.0]\n\n- b\n";

    #[test]
    fn section__ends_at_the_next_version() {
        let text = section(CHANGELOG, "0.2.0").expect("a section");
        assert!(text.starts_with("### Added") && text.ends_with("example)"), "{text}");
        assert_eq!(section(CHANGELOG, "0.1.0").expect("the last"), "- b");
    }

    #[test]
    fn section__missing_or_empty_is_refused() {
        assert!(
            section(CHANGELOG, "0.3.0").is_err_and(|error| error.to_string().contains("0.3.0"))
        );
        assert!(section(CHANGELOG, "Unreleased").is_err());
        assert!(section(CHANGELOG, "0.2").is_err());
    }

    #[test]
    fn release_notes__links_lead_to_the_repository() {
        let notes = release_notes(CHANGELOG, "0.2.0", "https://r.example").expect("notes");
        assert!(notes.contains("[page](https://r.example/blob/v0.2.0/docs/a.md)"), "{notes}");
        assert!(notes.contains("[site](https://a.example)"));
    }

    #[test]
    fn section__this_tree_describes_its_version() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../CHANGELOG.md");
        let changelog = std::fs::read_to_string(path).expect("a changelog");
        section(&changelog, env!("CARGO_PKG_VERSION")).expect("a section of this version");
    }
}
