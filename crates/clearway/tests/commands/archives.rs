//! Archives on disk: what is made is right, what is damaged is found, and what is cut off is read
//! up to there.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::waiting::{has_bytes, wait_until};

/// A directory that goes when it is dropped.
struct ArchiveDirectory(PathBuf);

impl ArchiveDirectory {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("clearway-archives-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Runs `clearway msa` here with the words of `line`.
    fn msa(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_clearway"))
            .arg("msa")
            .args(line.split(' '))
            .current_dir(&self.0)
            .output()
            .unwrap()
    }

    /// What it prints, after it ended with `code`.
    fn page(&self, line: &str, code: i32) -> String {
        let output = self.msa(line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.0.join(file)).unwrap()
    }

    fn write(&self, file: &str, bytes: &[u8]) {
        fs::write(self.0.join(file), bytes).unwrap();
    }
}

impl Drop for ArchiveDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a check counted of the only file: items, microslices, CRCs, ramps, faults.
fn counts(page: &str) -> [String; 5] {
    let words: Vec<&str> = page.lines().nth(1).unwrap().split_whitespace().collect();
    [words[0], words[1], words[4], words[5], words[6]].map(str::to_owned)
}

#[test]
fn check__what_was_made_is_right_in_every_form() {
    let place = ArchiveDirectory::new("made");
    let forms =
        ["--sizes poisson", "--compress", "--flesnet-1", "--flesnet-checksum --sizes skewed"];
    for (number, form) in forms.iter().enumerate() {
        place.page(&format!("make m{number}.msa --items 50 --mean 1KiB {form}"), 0);
        let crcs = if form.contains("checksum") { "-" } else { "50" };
        let page = place.page(&format!("check m{number}.msa"), 0);
        assert_eq!(counts(&page), ["50", "50", crcs, "50", "0"], "{form}");
        assert!(page.ends_with("no faults in 1 file\n"), "{page}");

        let line = format!(
            "make t{number}.tsa --items 3 --channels 2 --core 4 --overlap 2 --mean 100B {form}"
        );
        place.page(&line, 0);
        let crcs = if form.contains("checksum") { "-" } else { "36" };
        assert_eq!(
            counts(&place.page(&format!("check t{number}.tsa"), 0)),
            ["3", "36", crcs, "36", "0"],
            "{form}"
        );
    }
}

#[test]
fn check__a_damaged_content_has_its_place() {
    let place = ArchiveDirectory::new("damaged");
    place.page("make good.tsa --items 3 --channels 2 --core 4 --mean 64B", 0);
    let mut bytes = place.read("good.tsa");
    let at = bytes.len() - 100 - 2 * 36;
    bytes[at] ^= 1;
    place.write("bad.tsa", &bytes);
    let page = place.page("check good.tsa bad.tsa", 3);
    assert!(
        page.contains(
            "once: the content does not have the CRC-32C of its descriptor (first in item 2, component 1, microslice 3)"
        ),
        "{page}"
    );
    assert!(
        page.contains("once: the content is not the ramp of its channel (first in item 2, component 1, microslice 3)"),
        "{page}"
    );
    assert!(page.ends_with("FAULTS in 1 of 2 files\n"), "{page}");
    let json: serde_json::Value =
        serde_json::from_str(&place.page("check --json bad.tsa", 3)).unwrap();
    assert_eq!(json[0]["check"]["faults"], 2);
    assert_eq!(json[0]["check"]["findings"][0]["first"]["microslice"], 3);
}

#[test]
fn check__a_cut_archive_is_read_up_to_there_and_a_fault() {
    let place = ArchiveDirectory::new("cut");
    for form in ["", " --compress"] {
        place.page(
            &format!(
                "make whole{}.tsa --items 4 --channels 2 --core 4 --mean 4KiB --sizes skewed{form}",
                form.len()
            ),
            0,
        );
        let bytes = place.read(&format!("whole{}.tsa", form.len()));
        place.write("cut.tsa", &bytes[..bytes.len() - 20]);
        let page = place.page("check cut.tsa", 3);
        assert!(page.contains("cut off: ") && page.ends_with("FAULTS in 1 of 1 file\n"), "{page}");
        assert_eq!(counts(&page)[4], "1", "{page}");
        let items: u32 = counts(&page)[0].parse().unwrap();
        assert!((3..=4).contains(&items), "{page}");
    }
    place.write("empty.msa", b"");
    assert!(place.page("check empty.msa", 3).contains("BROKEN: the file is empty"));
    let header = place.read("whole0.tsa")[..50].to_vec();
    place.write("header.msa", &header);
    assert!(place.page("info header.msa", 3).contains("the file ends within its header"));
}

#[test]
fn check__a_compressed_stream_that_is_closed_within_an_item_is_broken() {
    let place = ArchiveDirectory::new("closed");
    place.page("make a.msa --items 4 --mean 64B --compress", 0);
    let bytes = place.read("a.msa");
    let stream = bytes.windows(4).position(|bytes| bytes == [0x28, 0xb5, 0x2f, 0xfd]).unwrap();
    let plain = zstd::decode_all(&bytes[stream..]).unwrap();
    let closed = zstd::encode_all(&plain[..plain.len() - 20], 1).unwrap();
    place.write("b.msa", &[&bytes[..stream], &closed[..]].concat());
    let page = place.page("check b.msa", 3);
    assert!(
        page.contains(
            "BROKEN: the compressed stream is closed within an item, of which 84 bytes are there"
        ),
        "{page}"
    );
    assert_eq!(counts(&page)[..2], ["3", "3"], "{page}");
}

#[test]
fn check__a_length_that_the_descriptor_contradicts_hides_nothing() {
    let place = ArchiveDirectory::new("length");
    place.page("make a.msa --items 4 --mean 10KiB", 0);
    let mut bytes = place.read("a.msa");
    let descriptor = bytes.windows(2).position(|bytes| bytes == [0xdd, 1]).unwrap();
    bytes[descriptor + 32] ^= 1;
    place.write("b.msa", &bytes);
    let page = place.page("check b.msa", 3);
    assert!(
        page.contains("a microslice has 10240 bytes by its descriptor and 10241 by the length"),
        "{page}"
    );
    assert!(page.ends_with("FAULTS in 1 of 1 file\n"), "{page}");
}

#[test]
fn info__what_is_no_archive_is_said_of_each_file() {
    let place = ArchiveDirectory::new("none");
    place.write("text.msa", b"This is a text and no archive at all, however long it is.");
    place.page("make good.msa --items 1", 0);
    let page = place.page("info text.msa good.msa", 3);
    assert!(
        page.contains("BROKEN   at byte 0: this is no Boost archive")
            && page.contains("1 microslice, 64.0 KiB in all"),
        "{page}"
    );
    let output = place.msa("info nothing.msa");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .starts_with("clearway: nothing.msa: cannot be read: No such file")
    );
}

#[test]
fn check__a_compressed_archive_that_swells_is_refused_at_its_bound() {
    let place = ArchiveDirectory::new("swells");
    place.page("make a.msa --items 1 --mean 8B --compress", 0);
    let header =
        place.read("a.msa").windows(4).position(|bytes| bytes == [0x28, 0xb5, 0x2f, 0xfd]).unwrap();
    // One microslice of 256 MiB of zeros: 10 bytes of classes, 32 of descriptor with the length in
    // the 20th, the length.
    let mut item = vec![0; 42];
    item[30..34].copy_from_slice(&(256_u32 << 20).to_le_bytes());
    item.extend_from_slice(&(256u64 << 20).to_le_bytes());
    let mut encoder =
        zstd::stream::write::Encoder::new(place.read("a.msa")[..header].to_vec(), 1).unwrap();
    encoder.write_all(&item).unwrap();
    for _ in 0..256 {
        encoder.write_all(&vec![0; 1 << 20]).unwrap();
    }
    place.write("bomb.msa", &encoder.finish().unwrap());
    assert!(place.read("bomb.msa").len() < 1 << 16);
    let page = place.page("check --item-max 1MiB bomb.msa", 3);
    assert!(
        page.contains(
            "at byte 0: an item of at least 268435506 bytes, of which 1048576 are accepted"
        ),
        "{page}"
    );
    let mut broken = place.read("a.msa");
    broken[header + 12] ^= 0xff;
    broken[header + 6] ^= 0xff;
    place.write("broken.msa", &broken);
    assert!(place.page("check broken.msa", 3).contains("BROKEN: "));
}

#[test]
fn copy__sequences_are_played_in_order_and_cycles_go_on_in_time() {
    let place = ArchiveDirectory::new("copy");
    place.page("make one_0000.msa --items 3 --mean 64B --period 10ns", 0);
    place.page("copy file:one_%n.msa?cycles=3 three.msa --compress", 0);
    let page = place.page("check three.msa", 0);
    assert_eq!(counts(&page), ["9", "9", "9", "9", "0"]);
    assert!(place.page("info three.msa", 0).contains("0 to 80 ns"));
    let at = place.0.join("one_0001.msa");
    fs::copy(place.0.join("three.msa"), at).unwrap();
    assert!(place.page("copy one_%n.msa four.msa --items 5", 0).is_empty());
    assert!(place.page("check one_%n.msa", 0).ends_with("no faults in 2 files\n"));
    assert_eq!(counts(&place.page("check four.msa", 3)), ["5", "5", "5", "5", "1"]);
    let output = place.msa("copy one_0000.msa four.msa");
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "clearway: four.msa is there already, and is not written over\n"
    );
    assert_eq!(output.status.code(), Some(1));
    place.page("make other_0000.msa --items 1 --mean 64B", 0);
    place.page("make other_0001.msa --items 1 --mean 64B --channels 1 --core 1", 0);
    let output = place.msa("copy other_%n.msa mixed.msa");
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("other_0001.msa: holds other items than the files before it")
    );
}

#[test]
fn make__an_archive_for_each_channel_has_the_microslices_of_the_timeslices() {
    let place = ArchiveDirectory::new("inputs");
    place.page("make in_%i.msa --channels 3 --channel 5 --items 8 --mean 1KiB --sizes skewed", 0);
    assert!(place.page("check in_0.msa in_1.msa in_2.msa", 0).ends_with("no faults in 3 files\n"));
    place.page("make all.tsa --channels 3 --channel 5 --items 2 --core 4 --overlap 0 --mean 1KiB --sizes skewed", 0);
    let all = place.read("all.tsa");
    // The last bytes of an archive of microslices are the end of its last content.
    for input in 0..3 {
        let stream = place.read(&format!("in_{input}.msa"));
        let last = &stream[stream.len() - 100..];
        assert!(all.windows(last.len()).any(|bytes| bytes == last), "channel {input}");
    }
    let output = place.msa("make in_%i.msa");
    let sentence = "clearway: `in_%i.msa` stands for an archive for each channel; say how many with --channels\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), sentence);
    let output = place.msa("make many.tsa --channels 9 --channel 65530");
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("9 channels from 65530 on go beyond channel 65535")
    );
}

#[test]
fn make__a_killed_writer_leaves_a_readable_archive_that_is_in_nobodys_way() {
    let place = ArchiveDirectory::new("killed");
    for form in [&[][..], &["--compress"]] {
        let file = format!("k{}.tsa", form.len());
        let mut child = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args([
                "msa",
                "make",
                &file,
                "--items",
                "1000000",
                "--channels",
                "2",
                "--core",
                "10",
                "--mean",
                "1KiB",
            ])
            .args(form)
            .current_dir(&place.0)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let written = place.0.join(format!("{file}.unfinished"));
        wait_until("the file grows", || has_bytes(&written, 100_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let page = place.page(&format!("check {file}.unfinished"), 3);
        assert!(page.contains("unfinished: by its name") && counts(&page)[0] != "0", "{page}");
        place.page(&format!("make {file} --items 1 --channels 2 --core 10 --mean 1KiB"), 0);
    }
}
