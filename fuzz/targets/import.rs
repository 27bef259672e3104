//! An `opensm.conf` and the text of `ibnetdiscover`, separated by a zero byte: any of both are a
//! fabric, or are refused.

#![no_main]

use clearway_sim::spec::import::{SourceText, import};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (conf, net) = text.split_once('\0').map_or((text, None), |(conf, net)| (conf, Some(net)));
    let net = net.map(|text| SourceText { file: "ibnetdiscover", text });
    let _ = import("imported", "qdr", SourceText { file: "opensm.conf", text: conf }, net);
});
