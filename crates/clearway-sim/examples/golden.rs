//! Prints the golden text of the validation ladder; `--update` writes it to `tests/golden`.
#![forbid(unsafe_code)]

#[path = "../tests/validation/ladder/mod.rs"]
mod ladder;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let update = match arguments.as_slice() {
        [] => false,
        [flag] if flag == "--update" => true,
        _ => {
            eprintln!("usage: cargo run -p clearway-sim --example golden [-- --update]");
            return ExitCode::from(2);
        }
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for ladder::Golden { file, text } in ladder::GOLDEN {
        let text = text();
        if !update {
            println!("{file}\n{text}");
        } else if let Err(error) = std::fs::write(folder.join(file), text) {
            eprintln!("golden: {}: {error}", folder.join(file).display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
