-- Has a row with the manifest of an export until its import is finished.
ALTER TABLE conversation_updates.unfinished_copy RENAME TO unfinished_import;
ALTER TABLE conversation_updates.unfinished_import RENAME COLUMN source TO manifest;
