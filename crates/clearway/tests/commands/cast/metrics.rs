//! `--metrics` of a sender while it casts, and of a receiver that serves.

use std::io::{BufRead, BufReader, Read};
use std::process::Command;

use super::{Ground, MIB, PROGRAM, Receiver, noise};
use crate::scraped::{Scraped, address};

#[test]
fn metrics__show_a_cast_and_agree_with_its_summary() {
    let mut ground = Ground::new("metrics", 1);
    let key = ground.root.join("key");
    let mut serve = Command::new(PROGRAM);
    Receiver::prepare(&mut serve, &key, &ground.root.join("to1"), "127.0.0.1:0");
    let mut child = serve.args(["--metrics", "127.0.0.1:0"]).spawn().expect("the program");
    let mut line = String::new();
    // A byte at a time: what comes behind it is not taken with it.
    let errors = child.stderr.as_mut().expect("a pipe");
    while !line.ends_with('\n') {
        let mut byte = [0];
        errors.read_exact(&mut byte).expect("a line");
        line.push(char::from(byte[0]));
    }
    let served = address(&line).expect(&line);
    ground.receivers.push(Receiver::from_child(child, ground.root.join("to1")));
    let idle = Scraped::from_address(&served).expect("it is there");
    idle.is_accepted();
    idle.is_documented("cast_serve_");
    assert_eq!(idle.get("cast_serve_received_bytes_total"), 0.0);

    std::fs::write(ground.from("file"), noise(8 * MIB, 1)).expect("written");
    let arguments = ["file", "--rate", "20Mb/s", "--metrics", "127.0.0.1:0", "--json"];
    let mut cast = ground.command(&arguments).spawn().expect("the program");
    let mut said = BufReader::new(cast.stderr.take().expect("a pipe")).lines();
    let sender = said.find_map(|line| address(&line.ok()?)).expect("it says where");
    // The rest is read, so that nothing waits for it.
    std::thread::spawn(move || said.count());
    let (mut shown, mut last) = (Vec::new(), None);
    while let Some(scraped) = Scraped::from_address(&sender) {
        let states = ["active", "parked", "complete", "unchanged", "incomplete", "refused", "lost"];
        let receivers =
            states.map(|state| scraped.get(&format!("cast_receivers{{state=\"{state}\"}}")));
        if receivers == [0.0; 7] {
            // They are not called yet.
            continue;
        }
        assert_eq!(receivers.iter().sum::<f64>(), 2.0);
        let received = ground.receivers.iter().map(|receiver| {
            scraped.get(&format!("cast_received_bytes_total{{receiver=\"{}\"}}", receiver.address))
        });
        shown.push([
            scraped.get("cast_expected_bytes"),
            received.sum(),
            scraped.get("cast_symbols_sent_total"),
        ]);
        last = Some(scraped);
    }
    // The parser takes longer than a cast on a busy machine.
    let last = last.expect("it was seen under way");
    last.is_accepted();
    last.is_documented("cast_");
    let output = cast.wait_with_output().expect("an end");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.success(), "{summary}");
    assert!(shown.is_sorted_by(|one, next| one[1] <= next[1]), "{shown:?}");
    let cast = summary["cast"].as_f64().expect("a number");
    let [expected, received, symbols] = shown.last().expect("it was seen under way");
    assert!(*expected == cast && *received <= 2.0 * cast && *symbols > 0.0, "{shown:?} {summary}");

    let scraped = Scraped::from_address(&served).expect("it is there");
    let row = &summary["receivers"][1];
    assert_eq!(row["written"].as_f64(), Some(scraped.get("cast_serve_received_bytes_total")));
    assert_eq!(
        row["files"].as_f64(),
        Some(scraped.get("cast_serve_files_total{end=\"complete\"}"))
    );
    assert_eq!(scraped.get("cast_serve_casts_total{end=\"complete\"}"), 1.0);
    assert_eq!(scraped.get("cast_serve_active_casts"), 0.0);
}
