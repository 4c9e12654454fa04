-- Marks the file as a database of this service: "CUWS" in ASCII.
PRAGMA application_id = 1129666387;
