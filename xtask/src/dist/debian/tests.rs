//! The files that describe the package, and the places of its files.

use super::*;
use crate::install::{BuiltTree, install_contents};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the root of the tree")
}

/// Installs the tree, with words in place of what cargo builds and of what the program writes.
fn staged(scratch: &Path) -> PathBuf {
    let (programs, usr) = (scratch.join("programs"), scratch.join("stage/usr"));
    fs::create_dir_all(&programs).expect("a directory");
    for name in ["clearway", "clearway-shmem-describe", "libclearway_shmem.so"] {
        fs::write(programs.join(name), name).expect("a file");
    }
    let built = BuiltTree { root: root().to_owned(), programs, target: scratch.to_owned() };
    install_contents(&built, &usr, Path::new("/usr")).expect("installed");
    for made in ["share/zsh/site-functions/_clearway", "share/man/man1/clearway.1"] {
        make_parent(&usr.join(made)).expect("a directory");
        fs::write(usr.join(made), made).expect("a file");
    }
    fs::write(usr.join("share/doc/clearway/THIRD-PARTY.txt"), "terms").expect("a file");
    scratch.join("stage")
}

#[test]
fn arrange__files_stand_in_places_of_debian_and_nobody_elses_names_are_taken() {
    let scratch = std::env::temp_dir().join(format!("clearway-debian-{}", std::process::id()));
    let stage = staged(&scratch);
    let package =
        DebianPackage { root: root(), stage: &stage, scratch: &scratch, version: "1.2.3", time: 0 };
    package.arrange("x86_64-linux-gnu").expect("arranged");
    package.describe().expect("described");
    let entries = archive::read_tree(&stage).expect("a tree");
    let dangling: Vec<&TreeEntry> =
        entries.iter().filter(|entry| !stage.join(&entry.path).exists()).collect();
    let text = |path: &str| read(&stage.join("usr").join(path)).expect(path);
    let compiler = text("bin/oshcc.clearway");
    let description = text("lib/x86_64-linux-gnu/pkgconfig/clearway-shmem.pc");
    fs::remove_dir_all(&scratch).expect("removed");

    assert!(dangling.is_empty(), "links to nothing: {dangling:?}");
    let has = |path: &str| entries.iter().any(|entry| entry.path == path);
    for path in [
        "lib/systemd/system/clearway-stage@.service",
        "usr/bin/oshc++.clearway",
        "usr/lib/clearway/bin/oshrun",
        "usr/lib/clearway/lib/liboshmem.so",
        "usr/lib/x86_64-linux-gnu/libclearway_shmem.so",
        "usr/lib/x86_64-linux-gnu/libclearway_shmem.so.1",
        "usr/libexec/clearway/clearway-shmem-describe",
        "usr/share/doc/clearway/CHANGELOG.md.gz",
        "usr/share/doc/clearway/THIRD-PARTY.txt.gz",
        "usr/share/doc/clearway/changelog.gz",
        "usr/share/doc/clearway/copyright",
        "usr/share/man/man1/clearway.1.gz",
        "usr/share/man/man1/oshc++.clearway.1.gz",
        "usr/share/zsh/vendor-completions/_clearway",
    ] {
        assert!(has(path), "{path} is missing");
    }
    // Files of openmpi-bin and libopenmpi-dev.
    for path in ["usr/bin/oshcc", "usr/bin/oshrun", "usr/share/man/man1/oshcc.1.gz"] {
        assert!(!has(path), "{path} is Open MPI's");
    }
    assert!(!has("usr/lib/x86_64-linux-gnu/liboshmem.so"));
    assert!(compiler.contains("\nlib=$prefix/lib/x86_64-linux-gnu\n"));
    assert!(description.starts_with("prefix=/usr\n"), "{description}");
    assert!(description.contains("\nlibdir=${prefix}/lib/x86_64-linux-gnu\n"), "{description}");
}

#[test]
fn debian_version__what_precedes_a_release_sorts_before_it() {
    assert_eq!(debian_version("0.2.0"), "0.2.0");
    assert_eq!(debian_version("0.2.0-rc.1"), "0.2.0~rc.1");
}

#[test]
fn control_file__has_the_fields_of_a_binary_package() {
    let text = control_file("1.2.3", "amd64", "libc6 (>= 2.34)", 42);
    let (fields, description) = text.split_once("Description: ").expect("a description");
    for line in [
        "Package: clearway",
        "Version: 1.2.3",
        "Architecture: amd64",
        "Depends: libc6 (>= 2.34)",
        "Installed-Size: 42",
    ] {
        assert!(fields.lines().any(|field| field == line), "{line}");
    }
    assert!(fields.lines().all(|line| line.contains(": ")), "{fields}");
    let mut lines = description.lines();
    assert!(lines.next().is_some_and(|line| line.len() <= 80 && !line.ends_with('.')));
    assert!(lines.all(|line| line.starts_with(' ') && line.len() <= 80), "{description}");
    assert!(text.ends_with('\n') && !text.contains("\n\n"));
}

#[test]
fn copyright__has_the_terms_and_the_holder_of_the_tree() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../LICENSE-MIT");
    let licence = fs::read_to_string(path).expect("a licence");
    let text = copyright(&licence, "https://r.example").expect("a copyright");
    assert!(text.contains("\nCopyright: 2026 The Clearway authors\n"), "{text}");
    assert!(text.contains("\nLicense: Expat\n Permission is hereby granted"));
    let expat = text.rsplit("\n\n").next().expect("a stanza");
    assert!(expat.lines().skip(1).all(|line| line.starts_with(' ')), "{expat}");
    assert!(copyright("MIT", "x").is_err());
}

#[test]
fn changelog__has_the_form_that_debian_parses() {
    let text = changelog("1.0", "Thu, 01 Jan 1970 00:00:00 +0000");
    assert!(text.starts_with("clearway (1.0) unstable; urgency=medium\n\n  * "));
    assert!(text.ends_with(".github.com>  Thu, 01 Jan 1970 00:00:00 +0000\n"));
}

#[test]
fn installed_kib__rounds_each_file_up() {
    let entry = |body| TreeEntry { path: String::new(), body };
    let file = |long| entry(Body::File { bytes: vec![0; long], mode: 0o644 });
    let entries = [file(1), file(1024), file(1025), entry(Body::Directory)];
    assert_eq!(installed_kib(&entries), 1 + 1 + 2 + 1);
}

#[test]
fn maintainer__is_the_one_whom_the_builder_names_whole() {
    let named = |name: &str, address: &str| {
        maintainer_of([name, address].map(|text| Some(text.to_owned())))
    };
    assert_eq!(named("Eve", " eve@site.example\n"), MAINTAINER);
    assert_eq!(named("Eve ", " eve@site.example"), "Eve <eve@site.example>");
    assert_eq!(named("", "eve@site.example"), MAINTAINER);
    assert_eq!(maintainer_of([Some("Eve".to_owned()), None]), MAINTAINER);
}
