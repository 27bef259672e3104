//! `clearway mount --metrics`: figures that a public parser accepts and that `stage status` has too.

use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};

use super::{StagingPlace, error_of, staged};
use crate::scraped::{Scraped, address};
use crate::waiting::comes;

/// Mounts with metrics; returns where they are, or says why not.
fn mounted(place: &mut StagingPlace) -> Option<String> {
    let output = place.try_mount(&["--metrics", "127.0.0.1:0", "--rule", "/ckpt/**=bulk"]);
    let said = error_of(&output);
    if !output.status.success() && said.contains("Operation not permitted") {
        eprintln!("skipped: {}", said.trim());
        return None;
    }
    assert!(output.status.success(), "{said}");
    place.process = status(place)["process"].as_u64().map(|process| process as u32);
    Some(said.lines().find_map(address).expect("it says where"))
}

fn status(place: &StagingPlace) -> serde_json::Value {
    let status = staged(&["status", "--json"], &[&place.path("mnt")]);
    serde_json::from_str(&status).expect("JSON")
}

/// Returns whether all figures agree.
fn agree(scraped: &Scraped, status: &serde_json::Value) -> bool {
    let said = |name: &str| status[name].as_f64().expect(name);
    let figures = [
        ("staging_written_bytes_total", said("written_bytes")),
        ("staging_read_bytes_total", said("read_bytes")),
        ("staging_moved_bytes_total", said("moved_bytes")),
        ("staging_changes_total", said("changes")),
        ("staging_stalls_total", said("stalls")),
        ("staging_stalled_changes", said("stalled")),
        ("staging_unlogged_bytes", said("unlogged_bytes")),
        ("staging_cached_bytes", said("cached_bytes")),
        ("staging_log_used_bytes", said("log_bytes") - said("log_bytes_free")),
        ("staging_log_free_bytes", said("log_bytes_free")),
        ("staging_log_segments{state=\"used\"}", said("segments") - said("segments_free")),
        ("staging_log_segments{state=\"free\"}", said("segments_free")),
        ("staging_log_segments{state=\"retired\"}", said("segments_retired")),
        ("staging_lag", said("lag")),
        ("staging_drained_files_total", said("drained_files")),
        ("staging_inodes", said("inodes")),
        ("staging_inodes_limit", said("inodes_max")),
        ("staging_stopped", f64::from(u8::from(!status["stopped"].is_null()))),
    ];
    let syncs = status["syncs"]["buckets"].as_array().expect("buckets").iter();
    let syncs: f64 = syncs.map(|bucket| bucket[1].as_f64().expect("a count")).sum();
    let classes = ["control", "low-latency", "best-effort", "bulk", "scavenger"];
    figures.iter().all(|(name, value)| scraped.get(name) == *value)
        && scraped.get("staging_sync_seconds_count") == syncs
        && status["users"].as_array().expect("a list").iter().all(|user| {
            let name = format!("staging_user_bytes{{uid=\"{}\"}}", user["uid"]);
            user["log_bytes"].as_f64() == Some(scraped.get(&name))
        })
        && classes.iter().all(|class| {
            let figures = [
                ("staging_class_bytes", "class_bytes"),
                ("staging_class_files", "class_files"),
                ("staging_drained_bytes_total", "drained_bytes"),
            ];
            figures.iter().all(|(name, field)| {
                let figure = status[field][class].as_f64().unwrap_or(0.0);
                scraped.get(&format!("{name}{{class=\"{class}\"}}")) == figure
            })
        })
        && ["idle", "working", "failing", "parked"].iter().all(|state| {
            let is_it = f64::from(u8::from(status["drain"] == *state));
            scraped.get(&format!("staging_drain_state{{state=\"{state}\"}}")) == is_it
        })
}

/// Scrapes until all figures agree with the status: a text is given again for some time.
fn agreed(place: &StagingPlace, address: &str) -> Scraped {
    let mut last = None;
    let do_agree = comes(|| {
        let scraped = Scraped::from_address(address).expect("it is there");
        let (scraped, status) = last.insert((scraped, status(place)));
        agree(scraped, status)
    });
    let (scraped, status) = last.expect("scraped");
    assert!(do_agree, "{status}");
    scraped
}

#[test]
fn metrics__figures_of_a_mount_are_those_of_its_status() {
    let Some(mut place) = StagingPlace::new() else { return };
    let Some(address) = mounted(&mut place) else { return };
    place.hide_store();
    fs::create_dir(place.on_mount("ckpt")).expect("made");
    fs::write(place.on_mount("ckpt/a"), vec![1; 300_000]).expect("written");
    fs::hard_link(place.on_mount("ckpt/a"), place.on_mount("ckpt/same")).expect("linked");
    let mut file = File::create(place.on_mount("b")).expect("made");
    file.write_all(&[2; 5000]).expect("written");
    file.sync_all().expect("synced");
    drop(file);
    for name in 0..600 {
        fs::write(place.on_mount(&format!("many-{name}")), "x").expect("written");
    }
    let scraped = agreed(&place, &address);
    scraped.is_accepted();
    scraped.is_documented("staging_");
    assert_eq!(scraped.get("staging_written_bytes_total"), 305_600.0);
    assert_eq!(scraped.get("staging_class_bytes{class=\"bulk\"}"), 300_000.0);
    assert_eq!(scraped.get("staging_class_bytes{class=\"best-effort\"}"), 5600.0);
    assert!(scraped.get("staging_sync_seconds_count") >= 2.0);
    staged(&["set-class", "scavenger"], &[&place.on_mount("ckpt/a")]);
    let scraped = agreed(&place, &address);
    assert_eq!(scraped.get("staging_class_bytes{class=\"scavenger\"}"), 300_000.0);
    assert_eq!(scraped.get("staging_class_files{class=\"scavenger\"}"), 1.0);
    place.show_store();
    staged(&["wait", "--until", "stored"], &[&place.path("mnt")]);
    let scraped = agreed(&place, &address);
    assert_eq!(scraped.get("staging_class_bytes{class=\"scavenger\"}"), 0.0);
    assert_eq!(scraped.get("staging_drained_bytes_total{class=\"scavenger\"}"), 300_000.0);
    assert_eq!(scraped.get("staging_drained_bytes_total{class=\"best-effort\"}"), 5600.0);
    assert_eq!(scraped.get("staging_drain_state{state=\"idle\"}"), 1.0);
    place.umount();
    assert!(Scraped::from_address(&address).is_none(), "it ends with the mount");
}

#[test]
fn metrics__what_strangers_send_harms_neither_scrapers_nor_the_mount() {
    let Some(mut place) = StagingPlace::new() else { return };
    let Some(address) = mounted(&mut place) else { return };
    let connect = || TcpStream::connect(&address).expect("it listens");
    let idle: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    // It may be shown out before all of it is sent.
    let _ = connect().write_all(&vec![b'x'; 1 << 20]);
    let _ = connect().write_all(b"\0\xff\r\n\r\n");
    connect().write_all(b"GET /metr").expect("sent");
    fs::write(place.on_mount("file"), "written").expect("the mount works");
    assert!(Scraped::from_address(&address).is_some());
    drop(idle);
    place.umount();
}

#[test]
fn metrics__an_address_that_is_taken_is_said_before_anything_is_mounted() {
    let Some(mut place) = StagingPlace::new() else { return };
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let output = place.try_mount(&["--metrics", &address]);
    let said = error_of(&output);
    let why = format!("metrics cannot be served at {address}: ");
    assert!(said.contains(&why) && said.lines().count() == 1, "{said}");
    assert!(!place.path("log").exists(), "no log was made");
    let output = place.try_mount(&["--metrics", ":27183"]);
    assert!(error_of(&output).contains("give ADDR:PORT"), "{output:?}");
    if place.mount(&[]) {
        place.umount();
    }
}
