//! Records of ranks: any text is a record that reads back as itself, or is refused, without much
//! memory.

#![no_main]

use clearway_proto::congestion::PhaseRecord;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = serde_json::from_slice::<PhaseRecord>(bytes) {
        let text = serde_json::to_vec(&record).expect("a record is JSON");
        assert_eq!(serde_json::from_slice::<PhaseRecord>(&text).expect("and back"), record);
    }
});
