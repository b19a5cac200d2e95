"""What must hold of a sealed artifact, as questions with a verdict: the asset checks of every system ask them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline_assets.corpus.spine.artifact import Artifact, Damage, verify
from pipeline_assets.corpus.spine.held_folder import unreplaced
from pipeline_assets.corpus.spine.manifest import LabelsOf


@dataclass(frozen=True)
class Verdict:
    """Whether something holds, in words, and the numbers behind it.

    Attributes:
        applies: False where the question is none.
        is_slight: whether a failure is a warning at most, whatever the check is.
    """

    holds: bool
    because: str
    numbers: Mapping[str, int | float | str] = field(default_factory=dict)
    applies: bool = True
    is_slight: bool = False


def files_match_manifest(artifact: Artifact, labels_of: LabelsOf) -> Verdict:
    """Every file is there, byte for byte as it was sealed, and there are no others.

    Args:
        labels_of: names of the labels that artifacts of a kind have.
    """
    with unreplaced(artifact.folder):
        findings = list(verify(artifact.folder, labels_of))
    damage = [item for item in findings if isinstance(item, Damage)]
    if damage:
        return Verdict(False, f"{damage[0].path}: {damage[0].what}" + _and_more(len(damage)), {"damaged": len(damage)})
    size = sum(item.bytes for item in findings if not isinstance(item, Damage))
    return Verdict(True, f"{len(findings)} files, {size:,} bytes, as sealed", {"files": len(findings), "bytes": size})


def ledger_adds_up(artifact: Artifact) -> Verdict:
    """Rows in = rows out + merged + dropped + rejected, each with its reason; rejects are in the file of rejects."""
    ledger = artifact.manifest.identity.counts["ledger"]
    dropped, rejected = sum(ledger["dropped"].values()), sum(ledger["rejected"].values())
    kept_aside = sum(file.rows for file in artifact.manifest.identity.files if file.path.startswith("rejects"))
    merged = ledger.get("merged", 0)
    joined = f" + {merged:,} merged" if merged else ""
    words = f"{ledger['in']:,} in = {ledger['out']:,} out{joined} + {dropped:,} dropped + {rejected:,} rejected"
    numbers = {"in": ledger["in"], "out": ledger["out"], "dropped": dropped, "rejected": rejected}
    holds = ledger["in"] == ledger["out"] + merged + dropped + rejected and rejected == kept_aside
    return Verdict(holds, words if holds else f"not so: {words}; {kept_aside:,} rows in the file of rejects", numbers)


def _and_more(count: int) -> str:
    return f", and {count - 1} more" if count > 1 else ""
