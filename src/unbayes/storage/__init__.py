"""One file format for posteriors, models, memories and statistics; no pickle, no code."""

from unbayes.storage.archive import UnreadableFile as UnreadableFile
from unbayes.storage.checkpoint import Checkpoint as Checkpoint
from unbayes.storage.file import Saved as Saved
from unbayes.storage.file import load as load
from unbayes.storage.file import load_statistics as load_statistics
from unbayes.storage.file import save as save
from unbayes.storage.file import save_statistics as save_statistics
