//! The house rules, held against the real tree.

use std::path::Path;

use super::{findings, tree::Tree};

#[test]
fn workspace__keeps_the_house_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let tree = Tree::read(root).expect("the workspace can be read");
    let found: Vec<String> = findings(&tree).iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{} findings\n{}", found.len(), found.join("\n"));
}
