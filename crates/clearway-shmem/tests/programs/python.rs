//! The module of queues for Python, where Python and cffi are.

use std::path::Path;
use std::process::Command;

use crate::prefix::{oshrun, prefix, said};

#[test]
fn python__queues_work_beside_the_library() {
    let has_cffi = Command::new("python3").args(["-c", "import cffi"]).output();
    if !has_cffi.is_ok_and(|output| output.status.success()) {
        println!("skipped: queues from Python (python3 has no cffi)");
        return;
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (pes, far) in [(1, None), (3, None), (3, Some("udp"))] {
        let mut command = oshrun(pes);
        if let Some(wire) = far {
            command.env("SHMEM_NEAR", "1").env("SHMEM_WIRE", wire);
        }
        command
            .env("PYTHONPATH", sources.join("python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("LD_LIBRARY_PATH", prefix().join("lib"))
            .arg("python3")
            .arg(sources.join("tests/programs/queues.py"));
        let output = command.output().expect("oshrun");
        let text = said(&output);
        assert!(output.status.success() && text.contains("is content"), "{pes}: {text}");
    }
}
