-- Every search reads the whole pending list of this index: 10 µs for each 8 KiB. The server's default is 4 MiB.
ALTER INDEX IF EXISTS conversation_updates.titles_by_trigram SET (gin_pending_list_limit = 1024);
